use super::*;

#[test]
fn what_is_shown_is_accepted_again() {
    let odd = Behaviour::from_json(
        r#"{"script":[503,"reset-after-3",200],"tokens":"8-32","retry_after":2,
                "max_num_queued_reqs":0,"reset_at":5,"hang_share":0.25,"paused":true}"#,
    )
    .unwrap();
    assert_eq!(Behaviour::default().changed(&odd.to_json()).unwrap(), odd);
    let plain = Behaviour::default();
    assert_eq!(odd.changed(&plain.to_json()).unwrap(), plain);
    assert_eq!(plain.to_json().as_object().unwrap().len(), KEYS.len());
}

#[test]
fn a_wrong_value_names_its_key_and_what_is_accepted() {
    for (change, text) in [
        (r"[]", "the change must be a JSON object"),
        (r#"{"speed":1}"#, "speed: unknown key; accepted are script"),
        (
            r#"{"fail_share":1.5}"#,
            "fail_share: 1.5 is not accepted; it must be a number between 0 and 1",
        ),
        (
            r#"{"script":"503,melt"}"#,
            r#"script: "503,melt" is not accepted; it must be steps, each 200"#,
        ),
        (
            r#"{"fail_status":200}"#,
            "fail_status: 200 is not accepted; it must be a status from 400",
        ),
        (
            r#"{"tokens":0}"#,
            "tokens: 0 is not accepted; it must be a number from 1",
        ),
        (r#"{"tokens":"9-3"}"#, "tokens: \"9-3\" is not accepted"),
        (
            r#"{"max_num_seqs":0}"#,
            "max_num_seqs: 0 is not accepted; it must be a whole number of at least 1",
        ),
        (r#"{"retry_after":"a\r\nb"}"#, "retry_after: "),
        (
            r#"{"paused":"yes"}"#,
            "paused: \"yes\" is not accepted; it must be true or false",
        ),
        (
            r#"{"fail_share":0.6,"hang_share":0.6}"#,
            "fail_share, reset_share, hang_share: they",
        ),
    ] {
        let error = Behaviour::from_json(change).unwrap_err().to_string();
        assert!(error.starts_with(text), "{change}: {error}");
    }
}
