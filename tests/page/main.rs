//! The status page in a real browser: it renders, follows what happens, and is legible in both
//! themes, on a desk and on a phone.
//!
//! It needs Chromium and its driver (Debian's `chromium` and `chromium-driver`): `chromedriver` of
//! the path, or the one that `CHROMEDRIVER` names. Where there is none, or where it cannot run, it says
//! so and tests nothing.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on should say so"
)]

mod browser;
mod http;
mod router;

use std::io::Write as _;

use serde_json::{Value, json};

use browser::Browser;
use router::Router;

const SETTINGS: &str = "\
enable_retries: true
max_retries: 3
initial_backoff_ms: 1
max_backoff_ms: 5
eject_pause_ms: 200
eject_longest_pause_ms: 200
";

/// A desk and a phone, in pixels.
const DESK: (u32, u32) = (1280, 900);
const PHONE: (u32, u32) = (360, 740);

/// Asks for the page of a router over two engines, or says why not.
fn opened(test: &str) -> Option<(Router, Browser)> {
    opened_with(test, SETTINGS, 2)
}

/// The same of a router with these settings over so many engines.
fn opened_with(test: &str, settings: &str, engines: usize) -> Option<(Router, Browser)> {
    let browser = match Browser::start() {
        Ok(browser) => browser,
        Err(why) => {
            // Said aloud, where a macro would be heard only if the test failed.
            let _ = writeln!(std::io::stderr(), "{test}: skipped, since {why}");
            return None;
        }
    };
    let router = Router::start(settings, engines);
    browser.show(DESK, "light");
    browser.open(&router.page());
    Some((router, browser))
}

/// Whether some element that `selector` finds contains `text`.
fn says(selector: &str, text: &str) -> String {
    let (selector, text) = (json!(selector), json!(text));
    format!(
        "[...document.querySelectorAll({selector})].some((it) => it.textContent.includes({text}))"
    )
}

#[test]
fn it_follows_what_happens() {
    let Some((router, browser)) = opened("it_follows_what_happens") else {
        return;
    };
    browser.wait_for(&says("#connection", "Live"));
    browser.wait_for(&says("#headline", "Nothing is wrong, and nobody asks."));
    browser.wait_for("document.querySelectorAll('#engines-table tbody tr').length === 2");
    assert_eq!(
        browser.text("#requests-none"),
        "No request has failed, been retried, refused or held."
    );

    // Requests flow, and each of them is told of.
    router.ask(20, "plain");
    browser.wait_for(&says(".chart .legend li", "answered"));
    browser.wait_for("document.querySelector('.area.answered[d^=M]') !== null");
    browser.wait_for(&says("#headline", "Nothing is wrong."));
    let cells = browser.eval(
        "return [...document.querySelectorAll('#engines-table tr[data-level=ok] td')]\
         .filter((it) => it.dataset.label === 'Errors').map((it) => it.textContent)",
    );
    assert_eq!(cells, json!(["0 %", "0 %"]));

    // An engine refuses once: the other one saves the request.
    router.change(0, &json!({"script": "503,200"}));
    router.ask(2, "saved");
    browser.wait_for(&says("#requests .verdict", "saved"));
    browser.wait_for(&says("[data-card=retries] .figure", "saved"));
    browser.wait_for(&says("#reasons th", "status 503"));

    // It goes out.
    router.change(0, &json!({"script": "reset-before-head"}));
    router.ask_until_out(0);
    browser.wait_for("document.querySelector('#engines-table tr[data-level=bad]') !== null");
    browser.wait_for(&says("tr[data-level=bad] .state", "closes connections"));
    browser.wait_for(&says("tr[data-level=bad] .url", &router.engine(0)));
    browser.wait_for(&says("#changes li", "ejected"));
    browser.wait_for(&says("#headline", "The fleet"));
    browser.wait_for("document.querySelector('.marker.out[d]') !== null");

    // It comes back.
    router.change(0, &json!({"script": "200"}));
    router.ask_until_back(0);
    browser.wait_for("document.querySelector('#engines-table tr[data-level=bad]') === null");
    browser.wait_for(&says("#changes li", "up"));
    browser.wait_for("document.querySelector('.marker.back[d]') !== null");

    // A client is at fault.
    router.ask_for("nope", 9);
    browser.wait_for(&says("#errors tr", "model not found"));
    browser.wait_for(&says("[data-card=clients] .text", "9 requests refused"));
    assert_eq!(browser.complaints(), Vec::<String>::new());

    // It is gone, which is not to be overlooked.
    router.stop();
    browser.wait_for(&says("#connection", "Not heard since"));
    browser.wait_for("document.body.classList.contains('stale')");
}

#[test]
fn it_is_legible_in_both_themes_on_a_desk_and_on_a_phone() {
    let Some((router, browser)) = opened("it_is_legible") else {
        return;
    };
    router.ask(30, "plain");
    router.change(0, &json!({"script": "503"}));
    router.change(1, &json!({"script": "503,503,200"}));
    router.ask(12, "busy");
    router.change(0, &json!({"script": "reset-before-head"}));
    router.change(1, &json!({"script": "200"}));
    router.ask_until_out(0);
    router.ask_for("nope", 12);
    for size in [DESK, (768, 1024), PHONE] {
        for theme in ["light", "dark"] {
            browser.show(size, theme);
            browser.open(&router.page());
            browser
                .wait_for("document.querySelector('#engines-table tr[data-level=bad]') !== null");
            browser.eval(
                "for (const it of document.querySelectorAll('#requests details')) it.open = true",
            );
            browser.wait_for("document.querySelectorAll('.timeline .try').length > 1");
            let ground = browser.eval("return getComputedStyle(document.body).backgroundColor");
            assert_eq!(is_dark(&ground), theme == "dark", "{theme}: {ground}");
            let width = browser.eval("return document.documentElement.scrollWidth");
            let width = width.as_u64().unwrap();
            assert!(width <= size.0.into(), "{width} px wide at {} px", size.0);
            let pale = browser.eval(include_str!("contrast.js"));
            assert_eq!(pale, json!([]), "{theme} at {} px", size.0);
        }
    }
    assert_eq!(browser.complaints(), Vec::<String>::new());
}

#[test]
fn waits_for_an_engine_are_drawn_and_look_like_no_backoff() {
    // A request waits for two trials of the engine, which fail, and then in vain for a third.
    let settings = "enable_retries: true\nmax_retries: 9\ninitial_backoff_ms: 60\n\
                    backoff_multiplier: 1\njitter_factor: 0\nhold_timeout_ms: 700\n\
                    eject_pause_ms: 300\neject_longest_pause_ms: 300\n";
    let test = "waits_for_an_engine_are_drawn";
    let Some((router, browser)) = opened_with(test, settings, 1) else {
        return;
    };
    assert_eq!(
        browser.eval("return document.getElementById('requests-legend').checkVisibility()"),
        json!(false)
    );
    router.change(0, &json!({"script": "reset-before-head"}));
    router.ask_until_out(0);
    router.ask(1, "held");
    for (size, theme) in [(DESK, "light"), (DESK, "dark"), (PHONE, "light")] {
        browser.show(size, theme);
        browser.open(&router.page());
        browser.wait_for("document.querySelector('#requests details .part.hold') !== null");
        browser.eval("document.querySelector('#requests details').open = true");
        browser.wait_for(&says(".timeline .held .outcome", "none came in time"));
        // Each is where it was: after the backoff, if any, and up to the attempt.
        let drawn = browser.eval(include_str!("holds.js"));
        assert_eq!(drawn["apart"], json!(true), "{drawn:#}");
        assert_eq!(drawn["titles"][0], "waited for an engine: there was one");
        let last = drawn["titles"].as_array().unwrap().last().unwrap();
        assert_eq!(last, "waited for an engine: none came in time");
        assert_eq!(drawn["rows"], drawn["titles"].as_array().unwrap().len());
        assert!(drawn["contrast"].as_f64().unwrap() >= 3.0, "{drawn:#}");
        assert_ne!(drawn["hold"], drawn["wait"], "{theme}");
        assert!(
            browser
                .text("#requests-legend")
                .contains("waited for an engine")
        );
        let pale = browser.eval(include_str!("contrast.js"));
        assert_eq!(pale, json!([]), "{theme} at {} px", size.0);
    }
    // Those who do not see it are told.
    let told = browser.text("#requests summary .hidden");
    assert!(told.starts_with("waited ") && told.ends_with(" for an engine"));
    assert_eq!(browser.complaints(), Vec::<String>::new());
}

#[test]
fn the_theme_that_was_chosen_is_kept() {
    let Some((router, browser)) = opened("the_theme_that_was_chosen_is_kept") else {
        return;
    };
    let dark = || is_dark(&browser.eval("return getComputedStyle(document.body).backgroundColor"));
    assert!(!dark());
    browser
        .eval("document.getElementById('theme').click(); document.getElementById('theme').click()");
    assert_eq!(
        (browser.text("#theme").as_str(), dark()),
        ("Theme: dark", true)
    );
    browser.open(&router.page());
    assert_eq!(
        (browser.text("#theme").as_str(), dark()),
        ("Theme: dark", true)
    );
    // Light was chosen, whatever the system prefers.
    browser
        .eval("document.getElementById('theme').click(); document.getElementById('theme').click()");
    browser.show(DESK, "dark");
    assert_eq!(
        (browser.text("#theme").as_str(), dark()),
        ("Theme: light", false)
    );
    assert_eq!(browser.complaints(), Vec::<String>::new());
}

#[test]
fn what_a_client_chose_is_text_and_nothing_else() {
    let Some((router, browser)) = opened("what_a_client_chose_is_text") else {
        return;
    };
    let hostile = "<img/src=x/onerror=document.title='hit'><b>id</b>";
    router.change(0, &json!({"script": "503,200"}));
    router.change(1, &json!({"script": "503,200"}));
    router.ask(4, hostile);
    browser.wait_for("document.querySelector('#requests details') !== null");
    browser.eval("for (const it of document.querySelectorAll('#requests details')) it.open = true");
    browser.wait_for(&says("#requests dd", hostile));
    let made =
        browser.eval("return document.querySelectorAll('#requests img, #requests dd b').length");
    assert_eq!(made, json!(0));
    assert_ne!(browser.eval("return document.title"), json!("hit"));
    // And the policy would not have let it run.
    let ran = browser.eval(
        "const script = document.createElement('script'); \
         try { script.textContent = 'window.ran = true'; document.body.append(script) } catch {} \
         return window.ran ?? false",
    );
    assert_eq!(ran, json!(false));
}

#[test]
fn it_can_be_used_by_keyboard() {
    let Some((router, browser)) = opened("it_can_be_used_by_keyboard") else {
        return;
    };
    router.ask(10, "plain");
    browser.wait_for("document.querySelector('.plot[aria-valuetext^=now]') !== null");
    browser.press(".plot", browser::LEFT);
    browser.wait_for("document.querySelector('.plot[aria-valuetext^=at]') !== null");
    browser.wait_for("document.querySelectorAll('.chart .cursor').length === 4");
    browser.press(".plot", browser::ESCAPE);
    browser.wait_for("document.querySelector('.chart .cursor') === null");
    // The heads of the table sort.
    browser.press("#engines-table th:first-child button", browser::ENTER);
    browser.wait_for(
        "document.querySelector('th[aria-sort=ascending] button').textContent === 'Engine'",
    );
    browser.press("#engines-table th:first-child button", browser::ENTER);
    browser.wait_for("document.querySelector('th[aria-sort=descending]') !== null");
    let urls = browser.eval(
        "return [...document.querySelectorAll('#engines-table .url')].map((it) => it.textContent)",
    );
    let mut expected = [router.engine(0), router.engine(1)];
    expected.sort_by(|a, b| b.cmp(a));
    assert_eq!(urls, json!(expected));
    // Whatever can be clicked can be reached, and shows that it has been.
    let hidden = browser.eval(
        "return [...document.querySelectorAll('button, input, summary, a[href], .plot')]\
         .filter((it) => it.checkVisibility() && it.tabIndex < 0).length",
    );
    assert_eq!(hidden, json!(0));
    // What moves can be stopped.
    browser.press("#pause", browser::ENTER);
    browser.wait_for(&says("#connection", "Paused"));
    assert_eq!(browser.complaints(), Vec::<String>::new());
}

/// Whether a colour, such as `rgb(1, 2, 3)`, is nearer to black than to white.
fn is_dark(colour: &Value) -> bool {
    let digits = colour
        .as_str()
        .unwrap()
        .split(|c: char| !c.is_ascii_digit());
    let parts: Vec<u32> = digits.filter_map(|part| part.parse().ok()).collect();
    parts[..3].iter().sum::<u32>() < 3 * 128
}
