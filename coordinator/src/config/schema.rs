//! The configuration's format as JSON Schema (2020-12), made from the very types that read it: an editor that knows
//! it completes keys and marks slips while somebody types. What only [`super::check`] can know (that a name is
//! defined, that limits fit) is not in it.

use serde_json::Value;

use super::file::File;

/// The schema.
#[must_use]
pub fn schema() -> Value {
    let mut schema = schemars::schema_for!(File).to_value();
    if let Some(object) = schema.as_object_mut() {
        object.insert("title".to_owned(), "parallax.yaml".into());
        object.insert("description".to_owned(), "Configuration of the Parallax coordinator, format 1.".into());
    }
    schema
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::json;

    use super::*;
    use crate::config::builtin;
    use crate::config::embedded::EmbeddedFile;
    use crate::config::file::{
        CanaryFile, ControlFile, DriverFile, HttpFile, ListenFile, NodeFile, PinFile, QuestionsFile, ResolverFile,
        ServiceFile, SourceFile, VantageFile,
    };
    use crate::config::identity::IdentityFile;
    use crate::config::policy::Overrides;
    use crate::config::retain::{DatabaseFile, RetainFile};

    /// What is wrong with a value under a schema, as far as ours use the language.
    fn faults(root: &Value, schema: &Value, value: &Value, at: &str, found: &mut Vec<String>) {
        if let Some(reference) = schema.get("$ref").and_then(Value::as_str) {
            let target = root.pointer(reference.trim_start_matches('#')).unwrap();
            return faults(root, target, value, at, found);
        }
        for word in ["anyOf", "oneOf"] {
            if let Some(options) = schema.get(word).and_then(Value::as_array) {
                let fits = options.iter().any(|option| {
                    let mut inner = Vec::new();
                    faults(root, option, value, at, &mut inner);
                    inner.is_empty()
                });
                if !fits {
                    found.push(format!("{at}: fits none of {word}"));
                }
            }
        }
        let is = |kind: &str| match kind {
            "object" => value.is_object(),
            "array" => value.is_array(),
            "string" => value.is_string(),
            "integer" => value.is_i64() || value.is_u64(),
            "number" => value.is_number(),
            "boolean" => value.is_boolean(),
            "null" => value.is_null(),
            other => panic!("type {other}"),
        };
        let right = match schema.get("type") {
            None => true,
            Some(Value::String(kind)) => is(kind),
            Some(Value::Array(kinds)) => kinds.iter().any(|kind| is(kind.as_str().unwrap())),
            Some(other) => panic!("type {other}"),
        };
        if !right {
            found.push(format!("{at}: {value} is no {}", schema["type"]));
        }
        if schema.get("enum").is_some_and(|words| !words.as_array().unwrap().contains(value))
            || schema.get("const").is_some_and(|word| word != value)
        {
            found.push(format!("{at}: {value} is none of the words"));
        }
        if let Some(items) = value.as_array() {
            for (i, item) in items.iter().enumerate() {
                faults(root, schema.get("items").unwrap_or(&json!({})), item, &format!("{at}[{i}]"), found);
            }
        }
        let Some(object) = value.as_object() else { return };
        for key in schema.get("required").and_then(Value::as_array).into_iter().flatten() {
            if !object.contains_key(key.as_str().unwrap()) {
                found.push(format!("{at}: {key} is missing"));
            }
        }
        for (key, inner) in object {
            let at = format!("{at}.{key}");
            match (schema.pointer(&format!("/properties/{key}")), schema.get("additionalProperties")) {
                (Some(property), _) => faults(root, property, inner, &at, found),
                (None, Some(Value::Bool(false))) => found.push(format!("{at} is unknown")),
                (None, Some(other)) if other.is_object() => faults(root, other, inner, &at, found),
                (None, _) => {}
            }
        }
    }

    fn faults_of(yaml: &str) -> Vec<String> {
        let value: Value = serde_saphyr::from_str(yaml).unwrap();
        let (schema, mut found) = (schema(), Vec::new());
        faults(&schema, &schema, &value, "", &mut found);
        found
    }

    #[test]
    fn what_is_shipped_fits() {
        for (name, text) in [
            ("default", builtin::DEFAULT),
            ("example", builtin::EXAMPLE),
            ("deploy", include_str!("../../../deploy/parallax.yaml")),
        ] {
            assert_eq!(faults_of(text), Vec::<String>::new(), "{name}");
        }
    }

    #[test]
    fn slips_do_not_fit() {
        for (yaml, said) in [
            (builtin::DEFAULT.replace("canaries:", "cannaries:"), ".cannaries is unknown"),
            (builtin::DEFAULT.replace("port: 443", "port: https"), "is no"),
            (builtin::DEFAULT.replace("role: primary", "role: first"), "[1]"),
            (builtin::DEFAULT.replace("version: 1", ""), "\"version\" is missing"),
            (builtin::EXAMPLE.replace("mode: propose", "mode: maybe"), ".pin: fits none"),
        ] {
            let found = faults_of(&yaml);
            assert!(found.iter().any(|fault| fault.contains(said)), "{said}: {found:?}");
        }
    }

    /// The keys that a type reads, as its own error for an unknown one lists them.
    fn keys<T: serde::de::DeserializeOwned>() -> BTreeSet<String> {
        let error = serde_saphyr::from_str::<T>("no_such_key: 1").err().unwrap();
        let serde_saphyr::Error::SerdeUnknownField { expected, .. } = error.without_snippet() else {
            panic!("{error}")
        };
        expected.iter().map(|key| (*key).to_owned()).collect()
    }

    #[test]
    fn every_key_that_is_read_is_in_it() {
        let schema = schema();
        let listed = |pointer: &str| -> BTreeSet<String> {
            schema.pointer(pointer).unwrap().as_object().unwrap().keys().cloned().collect()
        };
        assert_eq!(listed("/properties"), keys::<File>());
        macro_rules! same {
            ($($type:ident),*) => {
                $(assert_eq!(listed(concat!("/$defs/", stringify!($type), "/properties")), keys::<$type>(), stringify!($type));)*
            };
        }
        same!(
            DatabaseFile,
            EmbeddedFile,
            RetainFile,
            CanaryFile,
            ControlFile,
            DriverFile,
            HttpFile,
            IdentityFile,
            ListenFile,
            NodeFile,
            Overrides,
            PinFile,
            QuestionsFile,
            ResolverFile,
            ServiceFile,
            SourceFile,
            VantageFile
        );
    }
}
