//! Headless Chromium, steered over its DevTools pipe: a page is looked at when it shows what a test waits
//! for, however slow the machine is. Called by the tests of the dashboard.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// A browser with one page. It is killed when the test ends.
pub struct Browser {
    child: Child,
    requests: ChildStdin,
    messages: BufReader<ChildStdout>,
    session: String,
    last: u64,
    /// What the browser refused or a script threw, in the words of the browser.
    pub errors: Vec<String>,
    _profile: tempfile::TempDir,
    /// Ends the thread of [`LONGEST`].
    _running: mpsc::Sender<()>,
}

/// A browser that stands still is killed after this time, so that the test fails and does not wait for ever.
const LONGEST: Duration = Duration::from_secs(300);

impl Browser {
    /// Starts the browser and opens `url`.
    pub fn open(url: &str) -> Self {
        let profile = tempfile::tempdir().unwrap();
        // The pipe of DevTools is at the descriptors 3 and 4.
        let mut child = Command::new("sh")
            .args(["-c", "exec \"$@\" 3<&0 4>&1 </dev/null >/dev/null 2>&1", "sh", "chromium"])
            .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"])
            .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .args(["--remote-debugging-pipe", "about:blank"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let requests = child.stdin.take().unwrap();
        let messages = BufReader::new(child.stdout.take().unwrap());
        let (session, last, errors) = (String::new(), 0, Vec::new());
        let (_running, is_over) = mpsc::channel::<()>();
        let id = child.id().to_string();
        thread::spawn(move || {
            if is_over.recv_timeout(LONGEST) == Err(mpsc::RecvTimeoutError::Timeout) {
                let _ = Command::new("kill").args(["-KILL", &id]).status();
            }
        });
        let mut browser = Self { child, requests, messages, session, last, errors, _profile: profile, _running };
        let target = browser.call("Target.createTarget", &json!({ "url": "about:blank" })).unwrap();
        let attach = json!({ "targetId": target["targetId"], "flatten": true });
        browser.session =
            browser.call("Target.attachToTarget", &attach).unwrap()["sessionId"].as_str().unwrap().to_owned();
        for domain in ["Log.enable", "Runtime.enable"] {
            browser.call(domain, &json!({})).unwrap();
        }
        browser.call("Page.navigate", &json!({ "url": url })).unwrap();
        browser
    }

    /// The value of a script of the page; of a promise, what it resolves to. An error if the script throws,
    /// or if the page was loaded anew meanwhile.
    pub fn evaluate(&mut self, script: &str) -> Result<Value, Value> {
        let parameters = json!({ "expression": script, "awaitPromise": true, "returnByValue": true });
        let mut answer = self.call("Runtime.evaluate", &parameters)?;
        let thrown = answer.get("exceptionDetails").is_some();
        if thrown { Err(answer) } else { Ok(answer["result"]["value"].take()) }
    }

    /// Waits until a script is true of the page. A page has a minute for it: a browser takes some seconds to
    /// start, more beside other tests.
    pub fn wait_until(&mut self, script: &str) {
        let until = Instant::now() + Duration::from_secs(60);
        loop {
            let value = self.evaluate(script);
            if value == Ok(Value::Bool(true)) {
                return;
            }
            assert!(Instant::now() < until, "{script} gives {value:?} after a minute: {}", self.dom());
            thread::sleep(Duration::from_millis(50));
        }
    }

    /// The page as it is after what is due now has been drawn.
    pub fn dom(&mut self) -> String {
        let drawn = "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => \
                     done(document.documentElement.outerHTML))))";
        self.evaluate(drawn).unwrap().as_str().unwrap().to_owned()
    }

    /// Types into what has the focus, and then presses Enter.
    pub fn type_and_enter(&mut self, text: &str) {
        self.call("Input.insertText", &json!({ "text": text })).unwrap();
        for kind in ["keyDown", "keyUp"] {
            let key =
                json!({ "type": kind, "key": "Enter", "code": "Enter", "windowsVirtualKeyCode": 13, "text": "\r" });
            self.call("Input.dispatchKeyEvent", &key).unwrap();
        }
    }

    /// Makes the page as wide as a phone.
    pub fn narrow(&mut self, width: u32) {
        let metrics = json!({ "width": width, "height": 740, "deviceScaleFactor": 2, "mobile": true });
        self.call("Emulation.setDeviceMetricsOverride", &metrics).unwrap();
    }

    /// Calls a method of the DevTools protocol. Messages end with a zero byte.
    fn call(&mut self, method: &str, parameters: &Value) -> Result<Value, Value> {
        self.last += 1;
        let mut request = json!({ "id": self.last, "method": method, "params": parameters });
        if !self.session.is_empty() {
            request["sessionId"] = self.session.clone().into();
        }
        self.requests.write_all(format!("{request}\0").as_bytes()).unwrap();
        loop {
            let mut message = Vec::new();
            self.messages.read_until(0, &mut message).unwrap();
            assert_eq!(message.pop(), Some(0), "the browser has ended");
            let mut message: Value = serde_json::from_slice(&message).unwrap();
            if message["id"] == self.last {
                let refused = message.get("error").is_some();
                return if refused { Err(message) } else { Ok(message["result"].take()) };
            }
            match message["method"].as_str() {
                Some("Log.entryAdded") if message["params"]["entry"]["level"] == "error" => {
                    self.errors.push(message["params"]["entry"].to_string());
                }
                Some("Runtime.exceptionThrown") => self.errors.push(message["params"].to_string()),
                _ => {}
            }
        }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
