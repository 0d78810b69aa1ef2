//! Opens a page in headless Chromium and waits until it says that the recording is read.
//!
//! The browser is told what to do through its DevTools pipe: JSON, each message with a zero byte behind it.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// Whether the page has drawn after the end of the recording.
const IS_READ: &str = "new Promise(done => requestAnimationFrame(() => \
                       done(['ended', 'broken'].includes(document.documentElement?.dataset.drawn))))";
/// How often the page is asked.
const ASK: Duration = Duration::from_millis(20);

/// Seconds from the request for the page until it has read the recording.
pub fn seconds_to_end(url: &str, deadline: Instant) -> Result<f64, String> {
    let mut browser = Browser::start(deadline)?;
    let target = browser.call("Target.createTarget", None, json!({"url": "about:blank"}))?;
    let attach = json!({"targetId": target["targetId"], "flatten": true});
    let session = browser.call("Target.attachToTarget", None, attach)?["sessionId"].clone();
    let began = Instant::now();
    browser.call("Page.navigate", Some(&session), json!({"url": url}))?;
    loop {
        let question = json!({"expression": IS_READ, "awaitPromise": true, "returnByValue": true});
        let answer = browser.call("Runtime.evaluate", Some(&session), question)?;
        if answer["result"]["value"] == true {
            return Ok(began.elapsed().as_secs_f64());
        }
        if Instant::now() > deadline {
            return Err(format!("the page did not read the recording in time: {answer}"));
        }
        thread::sleep(ASK);
    }
}

/// A browser with its pipe. It is killed when dropped.
struct Browser {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
    calls: u64,
    /// Ends the thread of the deadline.
    _running: mpsc::Sender<()>,
}

impl Browser {
    /// Starts one that is killed at the deadline, so that no call waits for ever.
    fn start(deadline: Instant) -> Result<Self, String> {
        // Chromium reads commands at descriptor 3 and answers at 4. It runs as root only without its sandbox;
        // the page is ours.
        let line = "exec chromium --headless --no-sandbox --disable-gpu --remote-debugging-pipe \
                    3<&0 4>&1 >/dev/null 2>&1 </dev/null";
        let mut shell = Command::new("sh");
        let shell = shell.args(["-c", line]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = shell.spawn().map_err(|e| format!("cannot start chromium: {e}"))?;
        let (Some(to), Some(from)) = (child.stdin.take(), child.stdout.take()) else {
            return Err("chromium has no pipe".into());
        };
        let (_running, is_over) = mpsc::channel::<()>();
        let id = child.id().to_string();
        thread::spawn(move || {
            let left = deadline.saturating_duration_since(Instant::now());
            if is_over.recv_timeout(left) == Err(mpsc::RecvTimeoutError::Timeout) {
                let _ = Command::new("kill").args(["-KILL", &id]).status();
            }
        });
        Ok(Self { child, to, from: BufReader::new(from), calls: 0, _running })
    }

    /// Calls a method and returns its result. Events that come before it are ignored.
    fn call(&mut self, method: &str, session: Option<&Value>, parameters: Value) -> Result<Value, String> {
        self.calls += 1;
        let mut message = json!({"id": self.calls, "method": method, "params": parameters});
        if let Some(session) = session {
            message["sessionId"] = session.clone();
        }
        let failed = |e: &dyn std::fmt::Display| format!("chromium does not answer to {method}: {e}");
        self.to.write_all(format!("{message}\0").as_bytes()).map_err(|e| failed(&e))?;
        loop {
            let mut bytes = Vec::new();
            self.from.read_until(0, &mut bytes).map_err(|e| failed(&e))?;
            bytes.pop();
            let mut answer: Value = serde_json::from_slice(&bytes).map_err(|e| failed(&e))?;
            if answer["id"] == self.calls {
                return Ok(answer["result"].take());
            }
        }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Both fail only if the browser has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
