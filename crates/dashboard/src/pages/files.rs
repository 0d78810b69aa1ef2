//! The files of the page, which are part of the program. The server answers with them, and with nothing else.

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use rust_embed::RustEmbed;

#[derive(RustEmbed)]
#[folder = "src/pages/page/"]
struct Files;

/// 404 if no file is called `path`.
pub fn answer(path: &str) -> Response {
    match Files::get(path) {
        Some(file) => ([(header::CONTENT_TYPE, kind(path))], file.data).into_response(),
        None => StatusCode::NOT_FOUND.into_response(),
    }
}

/// The media type, by the ending of a name.
fn kind(path: &str) -> &'static str {
    match path.rsplit_once('.').map(|(_, ending)| ending) {
        Some("html") => "text/html; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("svg") => "image/svg+xml",
        _ => "text/plain; charset=utf-8",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A page that loads anything from elsewhere would break without a network, and tell others of it.
    #[test]
    fn no_file_names_another_site_and_each_has_a_type() {
        // The name space of SVG is a name, and nothing is loaded from there.
        let allowed = ["http://www.w3.org/2000/svg"];
        let mut count = 0;
        for name in Files::iter() {
            count += 1;
            let file = Files::get(&name).unwrap();
            let text = String::from_utf8(file.data.into_owned()).unwrap();
            let text = allowed.iter().fold(text, |text, known| text.replace(known, ""));
            let ours = !name.starts_with("vendor/");
            assert!(!ours || !(text.contains("http://") || text.contains("https://")), "{name}");
            assert!(name.ends_with(".txt") || kind(&name) != "text/plain; charset=utf-8", "{name}");
            for inline in ["<style", "onclick=", " style=", "javascript:"] {
                assert!(!name.ends_with(".html") || !text.contains(inline), "{name}: {inline}");
            }
        }
        assert!(count > 10);
    }
}
