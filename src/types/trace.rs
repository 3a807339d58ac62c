//! The W3C trace context of a request, which connects it to the traces of other services.

use std::fmt;

/// The length in bytes of a header of this version of the format.
const LENGTH: usize = 55;

/// A span that may be the parent of others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceContext {
    pub trace: u128,
    pub span: u64,
    /// Whether the service that started the trace records it.
    pub sampled: bool,
}

impl TraceContext {
    /// The name of the header that holds a context.
    pub const HEADER: &'static str = "traceparent";

    /// Parses the value of a header. Returns `None` if it is invalid; the specification then requires a new trace.
    pub fn parse(text: &str) -> Option<Self> {
        // Later versions may append fields; their first fields are these.
        let (known, rest) = text.split_at_checked(LENGTH)?;
        let mut fields = known.split('-');
        let [version, trace, span, flags] = [(); 4].map(|()| fields.next());
        let (version, trace, span, flags) = (hex(version?, 2)?, hex(trace?, 32)?, hex(span?, 16)?, hex(flags?, 2)?);
        let rest_is_known = rest.is_empty() || (version > 0 && rest.starts_with('-'));
        if fields.next().is_some() || version == 0xff || trace == 0 || span == 0 || !rest_is_known {
            return None;
        }
        Some(Self { trace, span: u64::try_from(span).ok()?, sampled: flags & 1 == 1 })
    }
}

/// Parses a hexadecimal number with exactly `digits` digits in lower case.
fn hex(text: &str, digits: usize) -> Option<u128> {
    let lower = text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    (text.len() == digits && lower).then(|| u128::from_str_radix(text, 16).ok())?
}

/// Writes the value of the header.
impl fmt::Display for TraceContext {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "00-{:032x}-{:016x}-{:02x}", self.trace, self.span, u8::from(self.sampled))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn trace_context_parses_headers_of_the_specification() {
        let text = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let context = TraceContext::parse(text).unwrap();
        assert_eq!((context.span, context.sampled), (0x00f0_67aa_0ba9_02b7, true));
        assert_eq!(context.to_string(), text);
        assert!(!TraceContext::parse(&text.replace("-01", "-02")).unwrap().sampled, "another flag");
        let later = text.replacen("00", "cc", 1) + "-what-comes-later";
        assert_eq!(TraceContext::parse(&later), Some(context));
        for wrong in [
            String::new(),
            text[..54].to_owned(),
            format!("{text}-more"),
            text.replacen("00", "ff", 1),
            text.replacen("00", "cc", 1) + "x",
            text.to_uppercase(),
            text.replace("4bf92f3577b34da6a3ce929d0e0e4736", &"0".repeat(32)),
            text.replace("00f067aa0ba902b7", &"0".repeat(16)),
            text.replacen('-', "_", 1),
            text.replace("4bf9", "+bf9"),
            "é".repeat(40),
        ] {
            assert_eq!(TraceContext::parse(&wrong), None, "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn trace_context_parses_its_own_text(trace in 1..=u128::MAX, span in 1..=u64::MAX, sampled: bool) {
            let context = TraceContext { trace, span, sampled };
            prop_assert_eq!(TraceContext::parse(&context.to_string()), Some(context));
        }

        #[test]
        fn trace_context_parsing_never_panics(text in "\\PC{0,60}") {
            TraceContext::parse(&text);
        }
    }
}
