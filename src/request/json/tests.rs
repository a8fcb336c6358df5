use super::*;

fn read_fields(body: &[u8]) -> Result<Fields, BodyError> {
    Fields::read(body, &Wanted::default())
}

fn model(body: &str) -> Result<String, BodyError> {
    read_fields(body.as_bytes())?.model().map(str::to_owned)
}

#[test]
fn the_top_level_model_is_found_wherever_it_stands() {
    for body in [
        r#"{"model":"m"}"#,
        r#" { "stream" : true , "model" : "m" } "#,
        r#"{"tools":[{"model":"nested"}],"model":"m","messages":[{"model":1}]}"#,
        r#"{"mod\u0065l":"m"}"#,
        "\u{feff}{\"model\":\"m\"}",
        r#"{"seed":12345678901234567890,"t":1e400,"z":-0,"model":"\u006d"}"#,
    ] {
        assert_eq!(model(body).as_deref(), Ok("m"), "{body}");
    }
}

#[test]
fn of_two_models_the_last_one_counts() {
    assert_eq!(model(r#"{"model":"a","model":"b"}"#).as_deref(), Ok("b"));
    assert_eq!(model(r#"{"model":5,"model":"b"}"#).as_deref(), Ok("b"));
    assert_eq!(
        model(r#"{"model":"a","model":5}"#),
        Err(BodyError::ModelNotAString)
    );
}

#[test]
fn bodies_that_cannot_be_routed_say_why() {
    assert_eq!(model("{}"), Err(BodyError::MissingModel));
    assert_eq!(model(r#"{"model":null}"#), Err(BodyError::ModelNotAString));
    assert_eq!(model(r#"{"model":["m"]}"#), Err(BodyError::ModelNotAString));
    for body in [
        "",
        "[]",
        "\"m\"",
        "{",
        r#"{"model":"m""#,
        r#"{"model":"m"}x"#,
        "{'model':1}",
    ] {
        assert!(
            matches!(model(body), Err(BodyError::NotAnObject(_))),
            "{body}"
        );
    }
}

#[test]
fn deep_nesting_neither_overflows_nor_hides_the_model() {
    let deep = format!(
        r#"{{"a":{}{},"model":"m"}}"#,
        "[".repeat(100_000),
        "]".repeat(100_000)
    );
    assert_eq!(model(&deep).as_deref(), Ok("m"));
    assert!(model(&format!(r#"{{"a":{}"#, "[".repeat(100_000))).is_err());
    assert!(model(&format!(r#"{{"model":{}"#, "[".repeat(100_000))).is_err());
    let nested = format!(
        r#"{{"model":{}{}}}"#,
        "[".repeat(100_000),
        "]".repeat(100_000)
    );
    assert!(model(&nested).is_err());
}

#[test]
fn stream_is_read_and_nothing_but_true_turns_it_on() {
    let stream = |body: &str| read_fields(body.as_bytes()).unwrap().stream();
    assert!(stream(r#"{"model":"m","stream":true}"#));
    assert!(!stream(r#"{"model":"m","stream":false}"#));
    assert!(!stream(r#"{"model":"m","stream":"true"}"#));
    assert!(!stream(r#"{"model":"m"}"#));
}

#[test]
fn a_previous_response_is_read_where_it_is_a_string() {
    let previous = |body: &str| {
        let fields = read_fields(body.as_bytes()).unwrap();
        fields.previous_response_id().map(str::to_owned)
    };
    let some = |id: &str| Some(id.to_owned());
    assert_eq!(
        previous(r#"{"previous_response_id":"resp_1"}"#),
        some("resp_1")
    );
    assert_eq!(previous(r#"{"previous_response_id":"\u0061"}"#), some("a"));
    for body in [
        "{}",
        r#"{"previous_response_id":null}"#,
        r#"{"previous_response_id":5}"#,
        r#"{"previous_response_id":{"a":"b"}}"#,
        r#"{"input":{"previous_response_id":"resp_1"}}"#,
        r#"{"previous_response_id":"a","previous_response_id":null}"#,
    ] {
        assert_eq!(previous(body), None, "{body}");
    }
}

#[test]
fn an_alias_changes_the_bytes_of_one_string_only() {
    let body = Bytes::from_static(
        b"{ \"n\": 12345678901234567890 ,\"tools\":[{\"model\":\"alias\"}],\"model\" : \"al\\u0069as\" ,\"x\":\"\\u00e9\xc3\xa9\",\"y\":1e400}",
    );
    let fields = read_fields(&body).unwrap();
    assert_eq!(fields.model(), Ok("alias"));
    for name in ["m", "a/much-longer name than \"before\""] {
        let changed = fields.with_model(&body, name);
        let quoted = serde_json::to_string(name).unwrap();
        let expected = [
            &b"{ \"n\": 12345678901234567890 ,\"tools\":[{\"model\":\"alias\"}],\"model\" : "[..],
            quoted.as_bytes(),
            b" ,\"x\":\"\\u00e9\xc3\xa9\",\"y\":1e400}",
        ]
        .concat();
        assert_eq!(changed, expected);
    }
}

proptest::proptest! {
    #[test]
    fn no_bytes_make_it_panic(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..300)) {
        let _ = read_fields(&bytes);
    }

    #[test]
    fn a_renamed_body_names_the_new_model(
        before in "[ -~]{0,20}",
        after in "\\PC{0,20}",
        key in "[a-z]{1,5}",
    ) {
        let body = Bytes::from(
            serde_json::json!({key: {"model": 1}, "model": before, "z": [1, 2]}).to_string(),
        );
        let fields = read_fields(&body).unwrap();
        let changed = fields.with_model(&body, &after);
        let again = read_fields(&changed).unwrap();
        proptest::prop_assert_eq!(again.model(), Ok(after.as_str()));
    }
}

fn session_of(body: &str) -> Option<String> {
    let wanted = Wanted {
        session: true,
        session_key: Some("conversation".to_owned()),
        ..Wanted::default()
    };
    let fields = Fields::read(body.as_bytes(), &wanted).unwrap();
    fields.session().map(str::to_owned)
}

#[test]
fn the_session_is_named_by_the_configured_field_then_by_those_of_the_api() {
    let body = r#"{"safety_identifier":"s","prompt_cache_key":"p","user":"u","conversation":"c"}"#;
    assert_eq!(session_of(body).as_deref(), Some("c"));
    assert_eq!(
        session_of(&body.replace("conversation", "x")).as_deref(),
        Some("u")
    );
    let body = r#"{"safety_identifier":"s","prompt_cache_key":"p","user":null,"conversation":""}"#;
    assert_eq!(session_of(body).as_deref(), Some("p"));
    assert_eq!(
        session_of(r#"{"safety_identifier":"s\u0021"}"#).as_deref(),
        Some("s!")
    );
    assert_eq!(session_of(r#"{"conversation":17}"#).as_deref(), Some("17"));
    assert_eq!(session_of(r#"{"conversation":["c"],"model":"m"}"#), None);
}

#[test]
fn nobody_looks_for_a_session_that_is_not_wanted() {
    let fields = read_fields(br#"{"user":"u","model":"m"}"#).unwrap();
    assert_eq!(fields.session(), None);
}

#[test]
fn a_body_without_a_model_gets_one_before_all_its_fields() {
    for (body, named) in [
        ("{}", r#"{"model":"m"}"#),
        (" { } ", r#" {"model":"m" } "#),
        (r#"{"n":1e3}"#, r#"{"model":"m","n":1e3}"#),
        ("\u{feff}{\"n\": 1}", "\u{feff}{\"model\":\"m\",\"n\": 1}"),
    ] {
        let body = Bytes::from(body);
        let fields = read_fields(&body).unwrap();
        assert_eq!(fields.with_model(&body, "m"), named);
    }
}
