//! Arguments that mean what the schema asks for and are spelt as another type (C-21): models write `"5"` for 5.
//!
//! Only what loses nothing is coerced: the result has one spelling in the type that was given, and that is the one that was
//! given. Everything else is left to validation, which refuses it.

use callgate_policy::envelope::Coerced;
use serde_json::{Map, Value};

/// Coerces what does not have a type that the schema allows, and says what was coerced.
///
/// Law: arguments that validate come back unchanged, and so do their own results.
pub(super) fn coerce(schema: &Value, args: Value) -> (Value, Vec<Coerced>) {
    let mut done = Vec::new();
    let args = value(schema, args, &mut String::new(), &mut done);
    (args, done)
}

fn value(schema: &Value, given: Value, place: &mut String, done: &mut Vec<Coerced>) -> Value {
    let types = super::tool::types(schema);
    let given = match types.iter().any(|name| is(name, &given)) {
        true => given,
        false => match types.iter().find_map(|name| coerced(name, schema, &given)) {
            Some(coerced) => {
                let to = name_of(&coerced).to_owned();
                done.push(Coerced::new(place.clone(), name_of(&given), to));
                return coerced;
            }
            None => given,
        },
    };
    match given {
        Value::Object(fields) => Value::Object(object(schema, fields, place, done)),
        Value::Array(items) => {
            let items = items.into_iter().enumerate();
            Value::Array(items.map(|(at, item)| inside(&schema["items"], item, &at.to_string(), place, done)).collect())
        }
        other @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) => other,
    }
}

fn object(
    schema: &Value,
    fields: Map<String, Value>,
    place: &mut String,
    done: &mut Vec<Coerced>,
) -> Map<String, Value> {
    let is_required = |name: &str| schema["required"].as_array().is_some_and(|all| all.iter().any(|one| one == name));
    let mut coerced = Map::new();
    for (name, given) in fields {
        let Some(of_field) = schema["properties"].get(&name) else {
            coerced.insert(name, given);
            continue;
        };
        // Null for what may be left out.
        if given.is_null() && !is_required(&name) && !super::tool::types(of_field).iter().any(|name| is(name, &given)) {
            let argument = format!("{place}/{}", pointer(&name));
            done.push(Coerced::new(argument, "null", "absent"));
            continue;
        }
        let given = inside(of_field, given, &pointer(&name), place, done);
        coerced.insert(name, given);
    }
    coerced
}

fn inside(schema: &Value, given: Value, name: &str, place: &mut String, done: &mut Vec<Coerced>) -> Value {
    let length = place.len();
    place.push('/');
    place.push_str(name);
    let given = value(schema, given, place, done);
    place.truncate(length);
    given
}

/// A name in a JSON pointer (RFC 6901).
fn pointer(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

/// True if a value has the type that a schema calls so. An unknown name is none of ours to judge.
fn is(name: &str, given: &Value) -> bool {
    match name {
        "null" => given.is_null(),
        "boolean" => given.is_boolean(),
        "string" => given.is_string(),
        "array" => given.is_array(),
        "object" => given.is_object(),
        // 2.0 is an integer too; validation knows which are.
        "integer" | "number" => given.is_number(),
        _ => true,
    }
}

fn name_of(given: &Value) -> &'static str {
    match given {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// The value as this type, if that loses nothing.
fn coerced(name: &str, schema: &Value, given: &Value) -> Option<Value> {
    match (name, given) {
        ("integer", Value::String(text)) => number(text).filter(|number| !number.is_f64()).map(Value::Number),
        ("number", Value::String(text)) => number(text).map(Value::Number),
        ("boolean", Value::String(text)) => match text.as_str() {
            "true" => Some(Value::Bool(true)),
            "false" => Some(Value::Bool(false)),
            _ => None,
        },
        // Not 1e3 or 1.0, which have several spellings.
        ("string", Value::Number(number)) if !number.is_f64() => Some(Value::String(number.to_string())),
        ("string", Value::Bool(yes)) => Some(Value::String(yes.to_string())),
        ("array", Value::Bool(_) | Value::Number(_) | Value::String(_)) => {
            let fits = super::tool::types(&schema["items"]).iter().any(|name| is(name, given));
            fits.then(|| Value::Array(vec![given.clone()]))
        }
        _ => None,
    }
}

/// A number that is spelt as it would be printed: not `05`, `+5`, `5.00` or ` 5`, and none that has no room.
fn number(text: &str) -> Option<serde_json::Number> {
    let number: serde_json::Number = serde_json::from_str(text).ok()?;
    (number.to_string() == text).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn schema() -> Value {
        json!({
            "type": "object",
            "properties": {
                "count": { "type": "integer" },
                "ratio": { "type": "number" },
                "yes": { "type": "boolean" },
                "text": { "type": "string" },
                "list": { "type": "array", "items": { "type": "string" } },
                "numbers": { "type": "array", "items": { "type": "integer" } },
                "path": { "type": ["string", "object"], "properties": { "b64": { "type": "string" } } },
                "a/b": { "type": ["integer", "null"] },
            },
            "required": ["text"],
        })
    }

    #[test]
    fn c_21_what_loses_nothing_is_coerced() {
        for (given, wanted, from, to) in [
            (json!({ "count": "5" }), json!({ "count": 5 }), "string", "integer"),
            (json!({ "count": "-0" }), json!({ "count": "-0" }), "", ""),
            (json!({ "count": "-7" }), json!({ "count": -7 }), "string", "integer"),
            (json!({ "count": u64::MAX.to_string() }), json!({ "count": u64::MAX }), "string", "integer"),
            (json!({ "ratio": "0.5" }), json!({ "ratio": 0.5 }), "string", "number"),
            (json!({ "ratio": "2" }), json!({ "ratio": 2 }), "string", "integer"),
            (json!({ "yes": "true" }), json!({ "yes": true }), "string", "boolean"),
            (json!({ "yes": "false" }), json!({ "yes": false }), "string", "boolean"),
            (json!({ "text": 404 }), json!({ "text": "404" }), "integer", "string"),
            (json!({ "text": true }), json!({ "text": "true" }), "boolean", "string"),
            (json!({ "path": 5 }), json!({ "path": "5" }), "integer", "string"),
            (json!({ "list": "one" }), json!({ "list": ["one"] }), "string", "array"),
            (json!({ "list": "[\"one\"]" }), json!({ "list": ["[\"one\"]"] }), "string", "array"),
            (json!({ "numbers": 5 }), json!({ "numbers": [5] }), "integer", "array"),
            (json!({ "count": null }), json!({}), "null", "absent"),
        ] {
            let (coerced, done) = coerce(&schema(), given.clone());
            assert_eq!(coerced, wanted, "{given}");
            let places: Vec<_> = done.iter().map(|one| (one.from.as_str(), one.to.as_str())).collect();
            let expected = if from.is_empty() { vec![] } else { vec![(from, to)] };
            assert_eq!(places, expected, "{given}");
            assert_eq!(coerce(&schema(), coerced.clone()), (coerced, Vec::new()), "once is enough: {given}");
        }
        let (_, done) = coerce(&schema(), json!({ "path": { "b64": 5 }, "numbers": ["1", 2] }));
        let places: Vec<_> = done.iter().map(|one| one.argument.as_str()).collect();
        assert_eq!(places, ["/numbers/0", "/path/b64"]);
    }

    #[test]
    fn c_21_what_would_lose_something_is_left_alone() {
        for given in [
            json!({ "count": "05" }),
            json!({ "count": "+5" }),
            json!({ "count": " 5" }),
            json!({ "count": "5.0" }),
            json!({ "count": "5.5" }),
            json!({ "count": "1e3" }),
            json!({ "count": "18446744073709551616" }),
            json!({ "count": "five" }),
            json!({ "count": true }),
            json!({ "count": [5] }),
            json!({ "ratio": "0.10" }),
            json!({ "ratio": "0.1000000000000000055511151231257827" }),
            json!({ "ratio": "NaN" }),
            json!({ "yes": "True" }),
            json!({ "yes": "yes" }),
            json!({ "yes": 1 }),
            json!({ "text": 1.0 }),
            json!({ "text": null }),
            json!({ "text": ["a"] }),
            json!({ "list": 5 }),
            json!({ "list": { "0": "a" } }),
            json!({ "numbers": "5" }),
            json!({ "a/b": null }),
            json!({ "unknown": "5" }),
            json!("{\"count\": 5}"),
            json!(null),
        ] {
            assert_eq!(coerce(&schema(), given.clone()), (given.clone(), Vec::new()), "{given}");
        }
    }
}
