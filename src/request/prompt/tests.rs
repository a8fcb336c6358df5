use proptest::prelude::*;
use serde_json::{Value, json};

use super::super::json::{Fields, Wanted};
use super::*;

fn read(body: &str) -> Option<Vec<u8>> {
    let wanted = Wanted {
        prompt: true,
        ..Wanted::default()
    };
    let fields = Fields::read(body.as_bytes(), &wanted).unwrap();
    fields.prompt().map(<[u8]>::to_vec)
}

fn of(body: &Value) -> Vec<u8> {
    read(&body.to_string()).unwrap()
}

fn user(content: impl Into<Value>) -> Vec<u8> {
    of(&json!({"messages": [{"role": "user", "content": content.into()}]}))
}

#[test]
fn it_is_read_only_where_it_is_wanted() {
    let body = br#"{"model":"m","messages":[]}"#;
    let fields = Fields::read(body, &Wanted::default()).unwrap();
    assert_eq!(fields.prompt(), None);
    assert_eq!(read(r#"{"model":"m","messages":null}"#), None);
}

#[test]
fn parameters_are_no_part_of_it() {
    let with = json!({"model": "m", "temperature": 1, "stream": true, "user": "u", "n": 2,
        "messages": [{"role": "user", "content": "hello"}]});
    assert_eq!(of(&with), user(json!("hello")));
}

#[test]
fn neither_the_order_of_keys_nor_blanks_nor_escapes_matter() {
    let plain =
        r#"{"tools":[1],"messages":[{"role":"user","name":"n","content":"é\n"}],"prompt":"p"}"#;
    let other = "{ \"prompt\" : \"p\",\n \"messages\" : [ {\"name\":\"n\", \"content\" : \"\\u00e9\\u000a\" , \
                 \"role\":\"\\u0075ser\"} ] , \"tools\":[1] }";
    assert_eq!(read(plain), read(other));
}

#[test]
fn a_text_is_the_same_as_a_string_and_as_the_only_part() {
    let string = user(json!("hello"));
    assert_eq!(string, user(json!([{"type": "text", "text": "hello"}])));
    assert_eq!(string, user(json!(["hello"])));
    let marked = json!([{"cache_control": {"type": "ephemeral"}, "type": "text", "text": "hello"}]);
    assert_eq!(string, user(marked));
    assert_ne!(string, user(json!(["hel", "lo"])));
}

#[test]
fn what_an_engine_tells_apart_is_told_apart() {
    let all = [
        json!({"messages": [{"role": "user", "content": "ab"}]}),
        json!({"messages": [{"role": "system", "content": "ab"}]}),
        json!({"messages": [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}]}),
        json!({"messages": [{"role": "usera", "content": "b"}]}),
        json!({"messages": [{"role": "user", "content": "ab", "name": "n"}]}),
        json!({"messages": [{"role": "user", "content": ["a", "b"]}]}),
        json!({"system": "a", "messages": [{"role": "user", "content": "b"}]}),
        json!({"tools": ["a"], "messages": [{"role": "user", "content": "b"}]}),
        json!({"prompt": "ab"}),
        json!({"prompt": ["a", "b"]}),
        json!({"prompt": [1, 23]}),
        json!({"prompt": [12, 3]}),
        json!({"messages": [{"role": "assistant", "content": null,
            "tool_calls": [{"function": {"name": "f"}}]}]}),
        json!({"messages": [{"role": "assistant", "content": null,
            "tool_calls": [{"function": {"name": "g"}}]}]}),
        json!({"input": [{"type": "function_call_output", "call_id": "1", "output": "x"}]}),
        json!({"input": [{"type": "function_call_output", "call_id": "2", "output": "x"}]}),
    ];
    for (n, one) in all.iter().enumerate() {
        for other in &all[..n] {
            assert_ne!(of(one), of(other), "{one} {other}");
        }
    }
}

#[test]
fn a_picture_is_itself_and_no_other_and_counts_as_much_however_large() {
    let picture = |data: String, detail: &str| {
        user(json!([{"type": "image_url", "image_url": {"url": data, "detail": detail}}]))
    };
    let large = |byte: &str| format!("data:image/png;base64,{}", byte.repeat(1_000_000));
    assert_eq!(picture(large("A"), "low"), picture(large("A"), "low"));
    assert_ne!(picture(large("A"), "low"), picture(large("B"), "low"));
    assert_ne!(picture(large("A"), "low"), picture(large("A"), "high"));
    assert_ne!(
        picture("http://a/1".into(), "low"),
        picture("http://a/2".into(), "low")
    );
    assert!((2048..2300).contains(&picture(large("A"), "low").len()));
    let spaced = r#"{"messages":[{"role":"user","content":[
        { "image_url" : {"detail":"low", "url":"http://a/1"}, "type":"image_url" }]}]}"#;
    assert_eq!(read(spaced), Some(picture("http://a/1".into(), "low")));
}

#[test]
fn messages_of_other_apis_count_too() {
    assert_eq!(
        of(&json!({"input": "x", "instructions": "be kind"})),
        of(&json!({"instructions": [{"type": "input_text", "text": "be kind"}], "input": ["x"]}))
    );
    let items = |text: &str| {
        of(&json!({"input": [{"role": "user", "content": [{"type": "input_text", "text": text}]}]}))
    };
    assert_ne!(items("x"), items("y"));
}

#[test]
fn odd_shapes_count_by_their_bytes_or_not_at_all() {
    for messages in [
        "7",
        "true",
        "\"x\"",
        "{}",
        "[7, null, [], {}, \"x\"]",
        r#"[{"role":7,"content":8}]"#,
        r#"[{"content":{"a":[{}]}}]"#,
        r#"[{"role":"user","content":"\ud800 lone"}]"#,
        r#"[{"role":"user","content":[null,7,[[]],{"type":"text"},{"text":7}]}]"#,
        r#"[{"\ud800":1}]"#,
        r#"[{"role":"user","content":"a","content":"b"}]"#,
    ] {
        let body = format!(r#"{{"model":"m","messages":{messages}}}"#);
        assert!(read(&body).is_some(), "{body}");
    }
    let twice = r#"{"messages":[{"content":"a","role":"user","content":"b"}]}"#;
    assert_eq!(read(twice), Some(user(json!("b"))));
}

#[test]
fn a_body_that_is_no_utf_8_is_routed_as_if_it_had_none() {
    let wanted = Wanted {
        prompt: true,
        ..Wanted::default()
    };
    let body = b"{\"model\":\"m\",\"messages\":[\"\xff\"]}";
    let fields = Fields::read(body, &wanted).unwrap();
    assert_eq!((fields.model(), fields.prompt()), (Ok("m"), None));
}

#[test]
fn it_ends_where_routing_looks_no_further() {
    let long = "x".repeat(2 * Blocks::MOST_BYTES);
    assert_eq!(of(&json!({"prompt": long})).len(), Blocks::MOST_BYTES);
    let many = json!({"prompt": vec![12345; 500_000]});
    assert_eq!(of(&many).len(), Blocks::MOST_BYTES);
    let deep = format!(
        r#"{{"messages":{}{}}}"#,
        "[".repeat(100_000),
        "]".repeat(100_000)
    );
    assert!(read(&deep).is_some());
}

fn content() -> impl Strategy<Value = Value> {
    let part = prop_oneof![
        ".{0,200}".prop_map(|text| json!({"type": "text", "text": text})),
        ".{0,50}".prop_map(|url| json!({"type": "image_url", "image_url": {"url": url}})),
    ];
    prop_oneof![
        ".{0,400}".prop_map(Value::from),
        prop::collection::vec(part, 0..4).prop_map(Value::from),
        Just(Value::Null),
    ]
}

fn message() -> impl Strategy<Value = Value> {
    let role = prop_oneof![
        Just("system"),
        Just("user"),
        Just("assistant"),
        Just("tool")
    ];
    (role, content(), any::<bool>()).prop_map(|(role, content, calls)| {
        let mut message = json!({"role": role, "content": content});
        if calls {
            message["tool_calls"] = json!([{"id": "1", "function": {"name": "f"}}]);
        }
        message
    })
}

fn arbitrary() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        ".{0,20}".prop_map(Value::from),
    ];
    let keys = prop_oneof![
        Just("role".to_owned()),
        Just("content".to_owned()),
        Just("type".to_owned()),
        Just("text".to_owned()),
        Just("url".to_owned()),
        ".{0,5}",
    ];
    leaf.prop_recursive(5, 40, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::btree_map(keys.clone(), inner, 0..5)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn a_turn_goes_on_where_the_one_before_ended(
        messages in prop::collection::vec(message(), 1..12),
        kept in any::<prop::sample::Index>(),
        tools in any::<bool>(),
        field in prop_oneof![Just("messages"), Just("input")],
    ) {
        let mut body = json!({"model": "m", "stream": false});
        if tools {
            body["tools"] = json!([{"type": "function", "function": {"name": "f"}}]);
        }
        body[field] = json!(messages[..=kept.index(messages.len())]);
        let turn = of(&body);
        body[field] = json!(messages);
        body["temperature"] = json!(0.5);
        let next = of(&body);
        prop_assert!(next.starts_with(&turn));
        let (turn, next) = (Blocks::of("m", &turn), Blocks::of("m", &next));
        prop_assert!(next.hashes().starts_with(turn.hashes()));
    }

    #[test]
    fn no_shape_fails_and_none_depends_on_how_it_is_written(
        value in arbitrary(),
        key in prop::sample::select(SOURCES.to_vec()),
    ) {
        let body = json!({ "model": "m", key: value });
        let short = read(&body.to_string());
        let pretty = read(&serde_json::to_string_pretty(&body).unwrap());
        prop_assert_eq!(short.is_some(), pretty.is_some());
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let body = [b"{\"messages\":", bytes.as_slice(), b"}"].concat();
        let wanted = Wanted { prompt: true, ..Wanted::default() };
        let without = Fields::read(&body, &Wanted::default()).is_ok();
        prop_assert_eq!(Fields::read(&body, &wanted).is_ok(), without);
    }
}
