use super::*;

const TYPE: &str = "multipart/form-data; boundary=XX";

fn part(disposition: &str, content: &str) -> String {
    format!("--XX\r\nContent-Disposition: form-data; {disposition}\r\n\r\n{content}\r\n")
}

fn read(body: &str) -> Result<String, FormError> {
    FormModel::read(TYPE, body.as_bytes())?
        .name()
        .map(str::to_owned)
}

#[test]
fn the_model_is_found_wherever_it_stands() {
    let model = part("name=\"model\"", "m");
    let file = part("name=\"file\"; filename=\"a.wav\"", "RIFF\r\n--X\r\n--XY");
    for body in [
        format!("{model}{file}--XX--\r\n"),
        format!("{file}{model}--XX--"),
        format!("preamble\r\n{file}{model}--XX--\r\nepilogue"),
        format!("{}--XX--", part("name=model", "m")),
        format!(
            "{}--XX--",
            part("filename=\"name=x;\"; NAME=\"mod\\el\"", "m")
        ),
        "--XX  \r\ncontent-type: text/plain\r\nContent-disposition: form-data;name=\"model\"\r\n\r\nm\r\n--XX--".to_owned(),
    ] {
        assert_eq!(read(&body).as_deref(), Ok("m"), "{body}");
    }
}

#[test]
fn what_a_file_holds_is_no_part() {
    let file = part(
        "name=\"file\"",
        "name=\"model\"\r\n\r\nevil\r\n --XX\r\n--X X\r\n",
    );
    assert_eq!(read(&format!("{file}--XX--")), Err(FormError::MissingModel));
    let sly = part("name=\"file\"; filename=\"x; name=model\"", "evil");
    assert_eq!(read(&format!("{sly}--XX--")), Err(FormError::MissingModel));
}

#[test]
fn of_two_models_the_last_one_counts() {
    let (one, two) = (part("name=\"model\"", "a"), part("name=\"model\"", "b"));
    assert_eq!(read(&format!("{one}{two}--XX--")).as_deref(), Ok("b"));
}

#[test]
fn broken_forms_are_refused() {
    for body in [
        "",
        "--XX",
        "--XX--",
        "--XX\r\n",
        "--XX\r\nname",
        "nothing",
        "--XX\r\n\r\nx",
    ] {
        assert!(read(body).is_err(), "{body:?}");
    }
    let cut = part("name=\"model\"", "m");
    assert_eq!(read(cut.trim_end()), Err(FormError::Malformed));
}

#[test]
fn the_boundary_may_be_quoted_and_must_be_there() {
    let body = part("name=\"model\"", "m") + "--XX--";
    let model = |content_type: &str| {
        FormModel::read(content_type, body.as_bytes())?
            .name()
            .map(str::to_owned)
    };
    assert_eq!(
        model("multipart/form-data; boundary=\"XX\"").as_deref(),
        Ok("m")
    );
    assert_eq!(
        model("Multipart/Form-Data; charset=utf-8; boundary=XX").as_deref(),
        Ok("m")
    );
    for content_type in [
        "multipart/form-data",
        "multipart/mixed; boundary=XX",
        "application/json",
        "",
    ] {
        assert_eq!(
            model(content_type),
            Err(FormError::NotAForm),
            "{content_type}"
        );
    }
}

#[test]
fn a_model_that_is_no_short_text_is_refused() {
    let long = part("name=\"model\"", &"m".repeat(MAX_MODEL + 1)) + "--XX--";
    assert_eq!(read(&long), Err(FormError::ModelNotText));
    let mut bytes = part("name=\"model\"", "?").into_bytes();
    let at = bytes.iter().position(|byte| *byte == b'?').unwrap();
    bytes[at] = 0xff;
    bytes.extend_from_slice(b"--XX--");
    assert_eq!(FormModel::read(TYPE, &bytes), Err(FormError::ModelNotText));
}

#[test]
fn an_alias_changes_the_bytes_of_the_model_only() {
    let file = part("name=\"file\"", "alias\r\nalias");
    let body =
        |name: &str| Bytes::from(format!("{file}{}--XX--\r\n", part("name=\"model\"", name)));
    let model = FormModel::read(TYPE, &body("alias")).unwrap();
    for name in ["m", "a/longer-name"] {
        assert_eq!(model.with_model(&body("alias"), name), body(name));
    }
}

proptest::proptest! {
    #[test]
    fn no_bytes_make_it_panic(
        bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..200),
        splices in proptest::collection::vec(0..200usize, 0..8),
    ) {
        let mut body = bytes;
        for at in splices {
            let at = at.min(body.len());
            body.splice(at..at, *b"\r\n--XX\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\n");
        }
        let _ = FormModel::read(TYPE, &body);
    }
}

#[test]
fn a_form_without_a_model_gets_one_before_all_its_parts() {
    let file = part("name=\"file\"", "RIFF");
    for preamble in ["", "preamble --XX\r\n"] {
        let body = Bytes::from(format!("{preamble}{file}--XX--\r\n"));
        let form = FormModel::read(TYPE, &body).unwrap();
        let named = form.with_model(&body, "m");
        let expected = format!("{preamble}{}{file}--XX--\r\n", part("name=\"model\"", "m"));
        assert_eq!(named, expected);
        assert_eq!(FormModel::read(TYPE, &named).unwrap().name(), Ok("m"));
    }
}
