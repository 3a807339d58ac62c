//! Texts of a server, made safe for a terminal.

use crate::types::text::is_deceptive;

/// The longest text of a server that is shown or written, in characters.
const MAX_CHARACTERS: usize = 2000;

/// Returns a server's text for the terminal and the output: without control characters, and not longer than 2000 characters.
pub fn server_text(text: &str) -> String {
    let (mut shown, mut length) = (String::new(), 0);
    for character in text.chars() {
        let escaped = is_deceptive(character).then(|| character.escape_default());
        length += escaped.as_ref().map_or(1, ExactSizeIterator::len);
        if length > MAX_CHARACTERS {
            shown.push('…');
            break;
        }
        match escaped {
            Some(escaped) => shown.extend(escaped),
            None => shown.push(character),
        }
    }
    shown
}

/// Returns the body of a request or response as [`server_text`] does.
pub fn server_bytes(body: &[u8]) -> String {
    // A character has at most four bytes, and one more is needed to know that the text is cut.
    let most = 4 * (MAX_CHARACTERS + 1);
    server_text(&String::from_utf8_lossy(&body[..body.len().min(most)]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_text_has_no_control_characters() {
        assert_eq!(server_text("no such \u{1b}[31mmodel\r\n\u{9b}"), "no such \\u{1b}[31mmodel\\r\\n\\u{9b}");
        assert_eq!(server_text("über \u{202e}x"), "über \\u{202e}x");
    }

    #[test]
    fn server_text_is_cut() {
        assert_eq!(server_text(&"ä".repeat(2000)), "ä".repeat(2000));
        assert_eq!(server_text(&"ä".repeat(6_000_000)), "ä".repeat(2000) + "…");
        assert_eq!(server_bytes("ä".repeat(6_000_000).as_bytes()), "ä".repeat(2000) + "…");
        assert_eq!(server_text(&"\u{7}".repeat(6_000_000)), "\\u{7}".repeat(400) + "…");
    }
}
