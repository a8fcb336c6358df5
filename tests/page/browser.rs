//! A headless Chromium, told what to do over `WebDriver`.

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};
use serde_json::{Value, json};

use crate::http::send;

/// Keys as `WebDriver` names them.
pub(crate) const ENTER: char = '\u{e007}';
pub(crate) const ESCAPE: char = '\u{e00c}';
pub(crate) const LEFT: char = '\u{e012}';

/// How long a condition may take to come true, in milliseconds: two of its cores may be busy
/// building something else.
const PATIENCE_MS: u32 = 60_000;

/// The member of an element reference.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

const ARGUMENTS: [&str; 9] = [
    "--headless",
    // A container has no room for one, and the page is our own.
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
];

/// How many profiles there have been.
static PROFILES: AtomicU32 = AtomicU32::new(0);

/// A browser of this test's own, with a fresh profile; it ends when this is dropped.
pub(crate) struct Browser {
    driver: Child,
    address: SocketAddr,
    session: String,
    profile: PathBuf,
}

impl Browser {
    /// Starts one, or says why none can be had here.
    pub(crate) fn start() -> Result<Self, &'static str> {
        // It sets far more addresses aside than it has use for.
        let addresses = getrlimit(Resource::RLIMIT_AS).expect("a limit");
        if addresses.0 != RLIM_INFINITY {
            return Err("a browser cannot start with limited virtual memory");
        }
        let named = std::env::var_os("CHROMEDRIVER");
        let program = named.clone().unwrap_or_else(|| "chromedriver".into());
        let started = Command::new(&program)
            .arg("--port=0")
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn();
        let mut driver = match started {
            Ok(driver) => driver,
            Err(_) if named.is_none() => return Err("there is no chromedriver here"),
            Err(error) => panic!("{}: {error}", program.display()),
        };
        let number = PROFILES.fetch_add(1, Ordering::Relaxed);
        let name = format!("vllm-pingora-page-{}-{number}", std::process::id());
        let address = SocketAddr::from(([127, 0, 0, 1], port(&mut driver)));
        let mut browser = Self {
            driver,
            address,
            session: String::new(),
            profile: std::env::temp_dir().join(name),
        };
        let profile = format!("--user-data-dir={}", browser.profile.display());
        let arguments: Vec<_> = ARGUMENTS.into_iter().chain([profile.as_str()]).collect();
        let wanted = json!({"capabilities": {"alwaysMatch": {
            "goog:chromeOptions": {"args": arguments},
            "goog:loggingPrefs": {"browser": "ALL"},
            "timeouts": {"script": PATIENCE_MS},
        }}});
        let session = browser.call("POST", "/session", &wanted);
        let id = session["sessionId"].as_str().expect("a session");
        browser.session = format!("/session/{id}");
        Ok(browser)
    }

    /// Makes the window so large, on a system that prefers this theme.
    pub(crate) fn show(&self, (width, height): (u32, u32), theme: &str) {
        let metrics = json!({
            "width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500,
        });
        self.command("Emulation.setDeviceMetricsOverride", &metrics);
        let media = json!({"features": [{"name": "prefers-color-scheme", "value": theme}]});
        self.command("Emulation.setEmulatedMedia", &media);
    }

    /// Opens a page, and waits until it is loaded.
    pub(crate) fn open(&self, url: &str) {
        self.ask("POST", "/url", &json!({ "url": url }));
    }

    /// What a script returns.
    pub(crate) fn eval(&self, script: &str) -> Value {
        self.ask(
            "POST",
            "/execute/sync",
            &json!({"script": script, "args": []}),
        )
    }

    /// Waits until an expression is true. The page is looked at whenever it changes.
    #[track_caller]
    pub(crate) fn wait_for(&self, condition: &str) {
        let script = format!(
            "const done = arguments[0]; \
             const check = () => {{ if ({condition}) {{ watch.disconnect(); done(true); }} }}; \
             const watch = new MutationObserver(check); \
             watch.observe(document, {{subtree: true, childList: true, attributes: true, characterData: true}}); \
             check();"
        );
        let body = json!({"script": script, "args": []}).to_string();
        let path = format!("{}/execute/async", self.session);
        let (status, answer) = send(self.address, "POST", &path, "", &body).unwrap();
        if status != 200 {
            let shown = self.eval("return document.body.innerText");
            panic!("{condition} does not come true: {answer}\n{shown:#}");
        }
    }

    /// The text of the element that `selector` finds.
    pub(crate) fn text(&self, selector: &str) -> String {
        let text = self.eval(&format!(
            "return document.querySelector({}).textContent",
            json!(selector)
        ));
        text.as_str().unwrap().to_owned()
    }

    /// Presses a key while that element has the focus.
    pub(crate) fn press(&self, selector: &str, key: char) {
        let wanted = json!({"using": "css selector", "value": selector});
        let found = self.ask("POST", "/element", &wanted);
        let element = found[ELEMENT].as_str().expect("an element");
        let path = format!("/element/{element}/value");
        self.ask("POST", &path, &json!({"text": key.to_string()}));
    }

    /// What the browser has complained of since it was asked last.
    pub(crate) fn complaints(&self) -> Vec<String> {
        let log = self.ask("POST", "/se/log", &json!({"type": "browser"}));
        let entries = log.as_array().unwrap().iter();
        entries.map(ToString::to_string).collect()
    }

    fn command(&self, name: &str, parameters: &Value) {
        let command = json!({"cmd": name, "params": parameters});
        self.ask("POST", "/goog/cdp/execute", &command);
    }

    fn ask(&self, method: &str, path: &str, body: &Value) -> Value {
        self.call(method, &format!("{}{path}", self.session), body)
    }

    fn call(&self, method: &str, path: &str, body: &Value) -> Value {
        let (status, answer) = send(self.address, method, path, "", &body.to_string()).unwrap();
        assert_eq!(status, 200, "{method} {path} {body}: {answer}");
        let answer: Value = serde_json::from_str(&answer).unwrap();
        answer["value"].clone()
    }
}

/// The port the driver says that it has.
fn port(driver: &mut Child) -> u16 {
    let told = driver.stdout.take().expect("its output");
    let mut lines = BufReader::new(told).lines();
    let line = lines
        .find_map(|line| {
            line.ok()?
                .split_once("successfully on port ")
                .map(|(_, rest)| rest.to_owned())
        })
        .expect("the driver starts");
    // Whatever else it says is nobody's.
    std::thread::spawn(move || lines.for_each(drop));
    line.trim_end_matches('.').parse().unwrap()
}

impl Drop for Browser {
    fn drop(&mut self) {
        if !self.session.is_empty() {
            // That ends the browser; an error says that it has ended.
            let _ = send(self.address, "DELETE", &self.session, "", "");
        }
        let _ = self.driver.kill();
        let _ = self.driver.wait();
        let _ = std::fs::remove_dir_all(&self.profile);
    }
}
