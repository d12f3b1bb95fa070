//! JSON Schemas of tools.

use std::collections::HashMap;
use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, LazyLock, Mutex, OnceLock, PoisonError};

use serde::{Serialize, Serializer};
use serde_json::Value;

/// JSON Schema 2020-12 of a tool's arguments or results. Copies share it, with what has been made of it.
///
/// A schema of callgate's own is parsed when somebody first looks at it, once for all sessions: a session has dozens of them, and
/// seldom needs more than one.
#[derive(Clone)]
pub struct Schema(Arc<Content>);

struct Content {
    /// Empty if it came as a value.
    text: &'static str,
    value: OnceLock<Value>,
    /// Built when arguments are first compared with it: it takes longer than most calls.
    validator: OnceLock<Result<jsonschema::Validator, String>>,
}

/// Schemas of callgate's own, by the address of their text.
static BUNDLED: LazyLock<Mutex<HashMap<(usize, usize), Schema>>> = LazyLock::new(Mutex::default);

impl Schema {
    /// Takes a schema of callgate's own.
    pub(crate) fn bundled(text: &'static str) -> Self {
        let new = || Self(Arc::new(Content { text, value: OnceLock::new(), validator: OnceLock::new() }));
        let mut known = BUNDLED.lock().unwrap_or_else(PoisonError::into_inner);
        known.entry((text.as_ptr().addr(), text.len())).or_insert_with(new).clone()
    }

    /// Validator of values that are to fit it.
    ///
    /// # Errors
    /// The reason why it is no JSON Schema.
    pub(super) fn validator(&self) -> Result<&jsonschema::Validator, &str> {
        let build = || jsonschema::options().build(self).map_err(|error| error.to_string());
        self.0.validator.get_or_init(build).as_ref().map_err(String::as_str)
    }
}

impl From<Value> for Schema {
    fn from(value: Value) -> Self {
        Self(Arc::new(Content { text: "", value: value.into(), validator: OnceLock::new() }))
    }
}

impl Deref for Schema {
    type Target = Value;

    fn deref(&self) -> &Value {
        // No value fits `false`: a schema that cannot be parsed would refuse every call. Tests look at each.
        self.0.value.get_or_init(|| serde_json::from_str(self.0.text).unwrap_or(Value::Bool(false)))
    }
}

impl PartialEq for Schema {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl fmt::Debug for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl Serialize for Schema {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        (**self).serialize(serializer)
    }
}
