use super::*;

fn flags(line: &str) -> Result<Flags, String> {
    let matches = command()
        .try_get_matches_from(line.split_whitespace())
        .map_err(|error| error.to_string())?;
    read(&matches).map_err(|error| explain(&error))
}

#[test]
fn the_command_is_well_formed_and_its_defaults_are_the_librarys() {
    command().debug_assert();
    let config = flags("simulate").ok().unwrap().config;
    assert_eq!(config.behaviour, Behaviour::default());
    assert_eq!((config.port, config.models), (8000, vec!["m".to_owned()]));
}

#[test]
fn flags_reach_the_behaviour() {
    let line = "simulate --model a --model b --script 503,hang,200 --tokens 8-32 \
            --ttft-ms 1.5 --retry-after 2 --reset-at 3 --max-num-queued-reqs 0 --paused";
    let config = flags(line).ok().unwrap().config;
    assert_eq!(config.models, ["a", "b"]);
    let shown = config.behaviour.to_json();
    assert_eq!(shown["script"], "503,hang,200");
    assert_eq!(shown["tokens"], "8-32");
    assert_eq!(shown["reset_at"], "after-3");
    assert_eq!(shown["max_num_queued_reqs"], 0);
    assert_eq!(shown["paused"], true);
}

#[test]
fn a_wrong_flag_is_named_with_what_is_accepted() {
    for (line, part) in [
        (
            "simulate --fail-share 1.5",
            "--fail-share: 1.5 is not accepted; it must be a number between",
        ),
        ("simulate --ttft-ms -1", "--ttft-ms: -1 is not accepted"),
        (
            "simulate --script 503,melt",
            "--script: \"503,melt\" is not accepted; it must be steps",
        ),
        (
            "simulate --fail-share 0.9 --hang-share 0.9",
            "--fail-share, --reset-share, --hang-share: they",
        ),
        ("simulate --port 70000", "70000"),
        ("simulate --keep-alive 0", "seconds"),
        ("simulate --threads 0", "0"),
    ] {
        let text = flags(line).err().unwrap();
        assert!(text.contains(part), "{line}: {text}");
    }
}
