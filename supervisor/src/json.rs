//! JSON whose size in memory is bounded as it is parsed.
//!
//! A byte of text can be a hundred in memory: each `{"":0}` is a node of a tree. What a worker sends is hostile, so the bound is
//! on what comes of it.

use std::cell::Cell;
use std::fmt;

use serde::de::{DeserializeSeed, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

/// Bytes that a value takes where it stands, its key or its place in a list included, and what an object takes besides:
/// a node with room for eleven entries.
const VALUE: usize = 64;
const OBJECT: usize = 640;

/// Parses JSON that takes at most so many bytes when it is parsed.
///
/// # Errors
/// For what is no JSON, and for what would take more.
pub fn parse(text: &[u8], most: usize) -> serde_json::Result<Value> {
    let left = Cell::new(most);
    let mut parser = serde_json::Deserializer::from_slice(text);
    let value = Measured(&left).deserialize(&mut parser)?;
    parser.end().map(|()| value)
}

/// How much is left.
#[derive(Clone, Copy)]
struct Measured<'a>(&'a Cell<usize>);

impl Measured<'_> {
    fn take<E: serde::de::Error>(self, bytes: usize) -> Result<(), E> {
        let left = self.0.get().checked_sub(bytes).ok_or_else(|| E::custom("more values than fit into memory"))?;
        self.0.set(left);
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for Measured<'_> {
    type Value = Value;

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        self.take(VALUE)?;
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Measured<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E: serde::de::Error>(self, value: &str) -> Result<Value, E> {
        self.take(value.len())?;
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut all = Vec::new();
        while let Some(item) = items.next_element_seed(self)? {
            all.push(item);
        }
        Ok(all.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        self.take(OBJECT)?;
        let mut all = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            self.take(key.len())?;
            all.insert(key, entries.next_value_seed(self)?);
        }
        Ok(all.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fits_is_what_it_always_was() {
        let text = r#"{"a": [1, -2, 2.5, true, null, "text"], "b": {"c": {}}}"#;
        assert_eq!(parse(text.as_bytes(), 4096).ok(), serde_json::from_str(text).ok());
        assert!(parse(b"[1", 4096).is_err() && parse(b"1 2", 4096).is_err());
    }

    /// D11: a worker that was taken over sends the densest JSON that there is.
    #[test]
    fn d11_dense_json_is_refused() {
        const MOST: usize = 1 << 20;
        for dense in [r#"{"":0},"#, "[],", "0,", r#""","#, "[[[[[[0]]]]]],"] {
            let many = format!("[{}0]", dense.repeat(MOST / 64));
            assert!(parse(many.as_bytes(), MOST).is_err(), "{dense}");
            let few = format!("[{}0]", dense.repeat(1000));
            assert!(parse(few.as_bytes(), MOST).is_ok(), "the control: {dense}");
        }
    }
}
