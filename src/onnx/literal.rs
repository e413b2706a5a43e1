//! Python literals and JSON, as exports write them into metadata: one parser, since both agree where they overlap.
//!
//! Python's `repr` gives `{0: "driver's cab", 1: 'a"b'}`; JSON gives `{"0": "driver's cab"}`.

use crate::error::{Error, Result};

/// Deepest nesting of lists and dictionaries.
const MAX_DEPTH: usize = 16;

/// A value.
#[derive(Debug, Clone, PartialEq)]
pub enum Literal {
    /// `None` or `null`.
    None,
    /// `True`, `true`, `False`, `false`.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// A number with a fraction or an exponent.
    Float(f64),
    /// Text.
    Text(String),
    /// A list or a tuple.
    List(Vec<Literal>),
    /// A dictionary or an object, in the order of the text.
    Map(Vec<(Literal, Literal)>),
}

impl Literal {
    /// Parses the whole of `text`.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Refused`] with the position of the first character that fits nothing.
    pub fn parse(text: &str) -> Result<Literal> {
        let mut reader = Reader { text, position: 0 };
        let value = reader.value(0)?;
        reader.skip_spaces();
        if reader.position < text.len() {
            return Err(reader.unexpected("the end"));
        }
        Ok(value)
    }
}

struct Reader<'a> {
    text: &'a str,
    position: usize,
}

impl<'a> Reader<'a> {
    fn rest(&self) -> &'a str {
        self.text.get(self.position..).unwrap_or_default()
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn next(&mut self) -> Option<char> {
        let next = self.peek()?;
        self.position += next.len_utf8();
        Some(next)
    }

    fn skip_spaces(&mut self) {
        while self.peek().is_some_and(|next| next.is_ascii_whitespace()) {
            self.next();
        }
    }

    fn take(&mut self, wanted: char) -> bool {
        self.skip_spaces();
        let found = self.peek() == Some(wanted);
        if found {
            self.next();
        }
        found
    }

    fn unexpected(&self, wanted: &str) -> Error {
        let found = self.peek().map_or("the end".to_owned(), |found| format!("`{}`", found.escape_default()));
        let position = self.text.get(..self.position).map_or(0, |before| before.chars().count());
        Error::refused(format!("found {found} at character {position}, expected {wanted}"))
    }

    fn value(&mut self, depth: usize) -> Result<Literal> {
        if depth > MAX_DEPTH {
            return Err(Error::refused(format!("found values nested deeper than {MAX_DEPTH} levels")));
        }
        self.skip_spaces();
        match self.peek() {
            Some('{') => self.map(depth),
            Some('[') => self.list('[', ']', depth),
            Some('(') => self.list('(', ')', depth),
            Some('\'' | '"') => self.string().map(Literal::Text),
            Some(start) if start.is_ascii_digit() || matches!(start, '-' | '+' | '.') => self.number(),
            Some(start) if start.is_ascii_alphabetic() => self.word(),
            _ => Err(self.unexpected("a value")),
        }
    }

    fn map(&mut self, depth: usize) -> Result<Literal> {
        self.take('{');
        let mut entries = Vec::new();
        loop {
            if self.take('}') {
                return Ok(Literal::Map(entries));
            }
            let key = self.value(depth + 1)?;
            if !self.take(':') {
                return Err(self.unexpected("`:`"));
            }
            entries.push((key, self.value(depth + 1)?));
            if !self.take(',') && self.peek() != Some('}') {
                return Err(self.unexpected("`,` or `}`"));
            }
        }
    }

    fn list(&mut self, open: char, close: char, depth: usize) -> Result<Literal> {
        self.take(open);
        let mut values = Vec::new();
        loop {
            if self.take(close) {
                return Ok(Literal::List(values));
            }
            values.push(self.value(depth + 1)?);
            if !self.take(',') && self.peek() != Some(close) {
                return Err(self.unexpected(&format!("`,` or `{close}`")));
            }
        }
    }

    fn number(&mut self) -> Result<Literal> {
        let rest = self.rest();
        let end =
            rest.find(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '+'))).unwrap_or(rest.len());
        let digits = rest.get(..end).unwrap_or_default();
        let value = digits.parse().map(Literal::Int).ok().or_else(|| digits.parse().map(Literal::Float).ok());
        let value = value.ok_or_else(|| self.unexpected("a number"))?;
        self.position += end;
        Ok(value)
    }

    fn word(&mut self) -> Result<Literal> {
        let rest = self.rest();
        let end = rest.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(rest.len());
        let value = match rest.get(..end).unwrap_or_default() {
            "None" | "null" => Literal::None,
            "True" | "true" => Literal::Bool(true),
            "False" | "false" => Literal::Bool(false),
            _ => return Err(self.unexpected("a value")),
        };
        self.position += end;
        Ok(value)
    }

    fn string(&mut self) -> Result<String> {
        let quote = self.next();
        let mut text = String::new();
        loop {
            match self.next() {
                None => return Err(self.unexpected("a closing quote")),
                found if found == quote => return Ok(text),
                Some('\\') => self.escape(&mut text)?,
                Some(found) => text.push(found),
            }
        }
    }

    fn escape(&mut self, text: &mut String) -> Result<()> {
        let plain = match self.next() {
            Some(same @ ('\\' | '\'' | '"' | '/')) => same,
            Some('n') => '\n',
            Some('t') => '\t',
            Some('r') => '\r',
            Some('b') => '\u{8}',
            Some('f') => '\u{c}',
            Some('x') => self.code(2)?,
            Some('u') => self.code(4)?,
            Some('U') => self.code(8)?,
            _ => return Err(self.unexpected("an escape that Python or JSON knows")),
        };
        text.push(plain);
        Ok(())
    }

    /// A character by its code in `digits` hex digits; two halves of a pair (JSON) make one.
    fn code(&mut self, digits: usize) -> Result<char> {
        let first = self.hex(digits)?;
        let code = if (0xd800..0xdc00).contains(&first) && self.rest().starts_with("\\u") {
            self.position += 2;
            let second = self.hex(4)?;
            0x10000 + ((first - 0xd800) << 10) + (second.wrapping_sub(0xdc00) & 0x3ff)
        } else {
            first
        };
        char::from_u32(code).ok_or_else(|| Error::refused(format!("found the code {code:x}, expected a character")))
    }

    fn hex(&mut self, digits: usize) -> Result<u32> {
        let code = self
            .rest()
            .get(..digits)
            .filter(|text| text.bytes().all(|byte| byte.is_ascii_hexdigit()))
            .and_then(|text| u32::from_str_radix(text, 16).ok())
            .ok_or_else(|| self.unexpected(&format!("{digits} hex digits")))?;
        self.position += digits;
        Ok(code)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn text(value: &str) -> Literal {
        Literal::Text(value.to_owned())
    }

    #[test]
    fn python_and_json_parse() {
        let names = Literal::parse(r#"{0: "driver's cab", 1: 'a"b: {1}'}"#).unwrap();
        assert_eq!(
            names,
            Literal::Map(vec![(Literal::Int(0), text("driver's cab")), (Literal::Int(1), text("a\"b: {1}"))])
        );
        let json = Literal::parse(r#"{"0": "a\u00e9\ud83d\ude00", "x": [1, 2.5, null, true]}"#).unwrap();
        let list = vec![Literal::Int(1), Literal::Float(2.5), Literal::None, Literal::Bool(true)];
        assert_eq!(json, Literal::Map(vec![(text("0"), text("aé😀")), (text("x"), Literal::List(list))]));
        assert_eq!(Literal::parse(r"'it\'s \x41\u00df\\'").unwrap(), text("it's Aß\\"));
        assert_eq!(Literal::parse("(17, 3)").unwrap(), Literal::List(vec![Literal::Int(17), Literal::Int(3)]));
        assert_eq!(Literal::parse("{'a': None,}").unwrap(), Literal::Map(vec![(text("a"), Literal::None)]));
        assert_eq!(Literal::parse("[]").unwrap(), Literal::List(vec![]));
        assert_eq!(Literal::parse("-1e3").unwrap(), Literal::Float(-1000.0));
    }

    #[test]
    fn what_is_neither_is_refused_with_its_place() {
        for bad in
            ["", "{", "{0", "{0:", "{0: 'a'", "'a", "[1 2]", "{0 'a'}", "open", "1 2", "'\\q'", "'\\ud800'", "1.2.3"]
        {
            assert!(Literal::parse(bad).is_err(), "{bad}");
        }
        assert!(Literal::parse(&"[".repeat(100_000)).unwrap_err().to_string().contains("nested"));
        let message = Literal::parse("{0: é}").unwrap_err().to_string();
        assert!(message.contains("character 4"), "{message}");
    }

    proptest! {
        #[test]
        fn any_text_gives_an_answer(text in ".{0,80}") {
            let _ = Literal::parse(&text);
        }

        #[test]
        fn json_text_comes_back(wanted in ".{0,40}") {
            let json = serde_json::to_string(&wanted).unwrap();
            prop_assert_eq!(Literal::parse(&json).unwrap(), Literal::Text(wanted));
        }
    }
}
