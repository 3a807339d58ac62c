//! Text that people have written, in the encoding of their editors.
//!
//! Everything that reads such text starts here, so that a byte-order mark never becomes a part of the first key, and a file in
//! another encoding is called that instead of damaged.

/// The mark that editors on Windows write in front of UTF-8.
const MARK: &[u8] = "\u{feff}".as_bytes();

/// Why bytes are not the text that is expected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TextError {
    #[error("it is {0} text: save it as UTF-8")]
    Encoding(&'static str),
    #[error("it is not UTF-8 text: byte {offset} is invalid")]
    Invalid { offset: usize },
}

/// Returns the text after a byte-order mark, whose encoding is not checked any further.
///
/// # Errors
///
/// Fails if the first bytes are those of another Unicode encoding, with or without a mark.
pub fn without_mark(bytes: &[u8]) -> Result<&[u8], TextError> {
    if let Some(rest) = bytes.strip_prefix(MARK) {
        return Ok(rest);
    }
    match bytes {
        [0xff, 0xfe, 0, 0, ..] | [0, 0, 0xfe, 0xff, ..] => Err(TextError::Encoding("UTF-32")),
        // Text begins with an ASCII character in every format that is read here.
        [0xff, 0xfe, ..] | [0xfe, 0xff, ..] | [0, 1..=0xff, ..] | [1..=0xff, 0, ..] => {
            Err(TextError::Encoding("UTF-16"))
        }
        _ => Ok(bytes),
    }
}

/// Returns text in UTF-8, without its byte-order mark.
///
/// # Errors
///
/// Fails if it is in another encoding.
pub fn utf8(bytes: &[u8]) -> Result<&str, TextError> {
    let text = without_mark(bytes)?;
    let skipped = bytes.len() - text.len();
    std::str::from_utf8(text).map_err(|error| TextError::Invalid { offset: skipped + error.valid_up_to() })
}

/// Reports whether a character may change what a terminal or a log shows beyond itself: control characters, separators of lines, and
/// marks and overrides of the direction of text.
pub fn is_deceptive(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_mark_is_skipped_once_and_other_encodings_are_named() {
        assert_eq!(utf8(b"\xef\xbb\xbf{}"), Ok("{}"));
        assert_eq!(utf8(b"\xef\xbb\xbf\xef\xbb\xbf1"), Ok("\u{feff}1"));
        assert_eq!(utf8("é".as_bytes()), Ok("é"));
        assert_eq!(utf8(b""), Ok(""));
        assert_eq!(utf8(b"\xef\xbb\xbfab\xff"), Err(TextError::Invalid { offset: 5 }));
        for wide in [&b"\xff\xfe{\0"[..], b"\xfe\xff\0{", b"{\0}\0", b"\0{\0}"] {
            assert_eq!(without_mark(wide), Err(TextError::Encoding("UTF-16")), "{wide:?}");
        }
        for wide in [&b"\xff\xfe\0\0{\0\0\0"[..], b"\0\0\xfe\xff\0\0\0{"] {
            assert_eq!(without_mark(wide), Err(TextError::Encoding("UTF-32")), "{wide:?}");
        }
    }
}
