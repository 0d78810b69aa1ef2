//! Tells where the comments of a Rust file are, for `words`. A parser drops comments that are no
//! documentation, so the compiler's own lexer finds them.

use ra_ap_rustc_lexer::{FrontmatterAllowed, TokenKind, tokenize};

/// For each line of `text`, where its comment begins, in bytes; none where the line has no comment.
pub fn starts(text: &str) -> Vec<Option<usize>> {
    let ends = text.match_indices('\n').map(|(end, _)| end + 1);
    let lines: Vec<usize> = std::iter::once(0).chain(ends).collect();
    let mut starts = vec![None; text.lines().count()];
    let mut at = 0;
    for token in tokenize(text, FrontmatterAllowed::No) {
        let (begin, end) = (at, at + token.len as usize);
        at = end;
        if matches!(token.kind, TokenKind::LineComment { .. } | TokenKind::BlockComment { .. }) {
            let first = lines.partition_point(|line| *line <= begin) - 1;
            for (line, start) in starts.iter_mut().enumerate().skip(first).take_while(|(line, _)| lines[*line] < end) {
                *start = start.or(Some(begin.saturating_sub(lines[line])));
            }
        }
    }
    starts
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
            ("let a = r#\"\"//\"#; // b", Some(18)),
            ("fn f<'a>(x: &'a str) // b", Some(21)),
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
