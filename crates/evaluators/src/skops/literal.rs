//! The Python literals in headers of arrays.

/// A literal of the kinds that NumPy writes.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Literal<'a> {
    Text(&'a str),
    Bool(bool),
    Count(usize),
    List(Vec<Self>),
    Tuple(Vec<Self>),
    Dict(Vec<(&'a str, Self)>),
}

/// How deeply literals may be nested. Structures of structures need a few levels.
const MAX_DEPTH: usize = 16;

/// Parses a literal, which only white space may follow.
pub(super) fn parse(text: &str) -> Option<Literal<'_>> {
    let mut parser = Parser { rest: text.trim_start() };
    let literal = parser.literal(0)?;
    parser.rest.is_empty().then_some(literal)
}

/// What is left of a text. It never begins with white space.
struct Parser<'a> {
    rest: &'a str,
}

impl<'a> Parser<'a> {
    /// Takes a token, if it is next.
    fn take(&mut self, token: &str) -> bool {
        match self.rest.strip_prefix(token) {
            Some(rest) => {
                self.rest = rest.trim_start();
                true
            }
            None => false,
        }
    }

    fn literal(&mut self, depth: usize) -> Option<Literal<'a>> {
        if depth > MAX_DEPTH {
            return None;
        }
        if self.take("{") {
            return self.dict(depth);
        }
        if self.take("[") {
            return Some(Literal::List(self.sequence("]", depth)?.0));
        }
        if self.take("(") {
            let (mut items, trailing) = self.sequence(")", depth)?;
            // Parentheses around one value without a comma do not make a tuple.
            return if items.len() == 1 && !trailing { items.pop() } else { Some(Literal::Tuple(items)) };
        }
        if self.take("True") {
            return Some(Literal::Bool(true));
        }
        if self.take("False") {
            return Some(Literal::Bool(false));
        }
        if self.rest.starts_with(['\'', '"']) {
            return self.text().map(Literal::Text);
        }
        let end = self.rest.find(|character: char| !character.is_ascii_digit()).unwrap_or(self.rest.len());
        let (digits, rest) = self.rest.split_at(end);
        self.rest = rest.trim_start();
        digits.parse().ok().map(Literal::Count)
    }

    /// Parses a text without escapes.
    fn text(&mut self) -> Option<&'a str> {
        let quote = self.rest.chars().next().filter(|quote| matches!(quote, '\'' | '"'))?;
        let (text, rest) = self.rest[1..].split_once(quote)?;
        self.rest = rest.trim_start();
        (!text.contains(['\\', '\n'])).then_some(text)
    }

    /// Parses the rest of a list or tuple. Also returns whether a comma follows the last item.
    fn sequence(&mut self, end: &str, depth: usize) -> Option<(Vec<Literal<'a>>, bool)> {
        let mut items = Vec::new();
        let mut trailing = false;
        while !self.take(end) {
            if !items.is_empty() && !trailing {
                return None;
            }
            items.push(self.literal(depth + 1)?);
            trailing = self.take(",");
        }
        Some((items, trailing))
    }

    fn dict(&mut self, depth: usize) -> Option<Literal<'a>> {
        let mut entries = Vec::new();
        let mut trailing = true;
        while !self.take("}") {
            if !trailing {
                return None;
            }
            let key = self.text()?;
            if !self.take(":") {
                return None;
            }
            entries.push((key, self.literal(depth + 1)?));
            trailing = self.take(",");
        }
        Some(Literal::Dict(entries))
    }
}
