//! Tells where the comments of a Rust file are, for `words`. A parser drops comments that are no
//! documentation, and a search for `//` finds addresses in strings.
//!
//! Invariant: text inside string and character literals is never taken for a comment.

/// For each line of `text`, where its comment begins, in bytes; none where the line has no comment.
pub fn starts(text: &str) -> Vec<Option<usize>> {
    let mut starts = Vec::new();
    let mut state = State::Code;
    for line in text.lines() {
        let mut start = matches!(state, State::Block(_)).then_some(0);
        let mut at = 0;
        while at < line.len() {
            let rest = &line[at..];
            if state == State::Code && rest.starts_with("//") {
                start = Some(at);
                break;
            }
            if state == State::Code && rest.starts_with("/*") {
                start = start.or(Some(at));
            }
            at += state.step(&line[..at], rest);
        }
        starts.push(start);
    }
    starts
}

#[derive(PartialEq)]
enum State {
    Code,
    /// In a string that ends at the next quote without a backslash before it.
    Text,
    /// In a raw string that ends at a quote followed by this many `#`.
    Raw(usize),
    /// In this many nested block comments.
    Block(usize),
}

impl State {
    /// Takes what `rest` begins with, and gives its length in bytes. `before` is the line up to there.
    fn step(&mut self, before: &str, rest: &str) -> usize {
        let one = rest.chars().next().map_or(1, char::len_utf8);
        match self {
            Self::Code => {
                if let Some((opening, hashes)) = raw(before, rest) {
                    *self = Self::Raw(hashes);
                    return opening;
                }
                if rest.starts_with("/*") {
                    *self = Self::Block(1);
                    return 2;
                }
                if rest.starts_with('"') {
                    *self = Self::Text;
                }
                character(rest).unwrap_or(one)
            }
            Self::Text if rest.starts_with('\\') => one + rest[one..].chars().next().map_or(0, char::len_utf8),
            Self::Text => {
                if rest.starts_with('"') {
                    *self = Self::Code;
                }
                one
            }
            Self::Raw(hashes) => {
                let end = format!("\"{}", "#".repeat(*hashes));
                if !rest.starts_with(&end) {
                    return one;
                }
                *self = Self::Code;
                end.len()
            }
            Self::Block(depth) if rest.starts_with("/*") => {
                *depth += 1;
                2
            }
            Self::Block(depth) if rest.starts_with("*/") => {
                *depth -= 1;
                if *depth == 0 {
                    *self = Self::Code;
                }
                2
            }
            Self::Block(_) => one,
        }
    }
}

/// The length of the opening of a raw string, and its number of `#`.
fn raw(before: &str, rest: &str) -> Option<(usize, usize)> {
    if before.ends_with(|c: char| c.is_alphanumeric() || c == '_') && !before.ends_with(['b', 'c']) {
        return None;
    }
    let hashed = rest.strip_prefix('r')?;
    let quoted = hashed.trim_start_matches('#');
    let hashes = hashed.len() - quoted.len();
    quoted.starts_with('"').then_some((2 + hashes, hashes))
}

/// The length of a character literal; none if `rest` begins with something else, a lifetime among others.
fn character(rest: &str) -> Option<usize> {
    let inner = rest.strip_prefix('\'')?;
    if let Some(escaped) = inner.strip_prefix('\\') {
        // The character behind the backslash may be a quote.
        let first = escaped.chars().next()?.len_utf8();
        return Some(2 + first + escaped[first..].find('\'')? + 1);
    }
    let first = inner.chars().next()?.len_utf8();
    inner[first..].starts_with('\'').then_some(2 + first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_begin_behind_code_and_not_in_literals() {
        let cases = [
            ("let a = 1; // one", Some(11)),
            ("/// Doc.", Some(0)),
            ("let a = \"http://x\";", None),
            ("let a = \"\\\"//\"; // b", Some(16)),
            ("let a = r#\"\"//\"#; // b", Some(18)),
            ("let a = br\"\\\"; // b", Some(15)),
            ("let a = '\"'; // b", Some(13)),
            ("let a = '\\''; // b", Some(14)),
            ("fn f<'a>(x: &'a str) // b", Some(21)),
            ("let a = 1 / 2;", None),
            ("let r = for_r\"x\"; // no raw string", Some(18)),
        ];
        for (line, start) in cases {
            assert_eq!(starts(line), [start], "{line}");
        }
    }

    #[test]
    fn strings_and_block_comments_go_over_lines() {
        let string = "let a = \"one // no\n  two // no\n\"; // yes\n";
        let text = format!("{string}/* a /* b\n*/ still\n*/ let b = 1;\nlet c = 2;");
        assert_eq!(starts(&text), [None, None, Some(3), Some(0), Some(0), Some(0), None]);
    }
}
