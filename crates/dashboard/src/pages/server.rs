//! The server of the page: who is answered, and with what.
//!
//! It runs on a thread of its own with one executor, so that requests never use the threads of the transport.
//! A request is answered only if its path begins with the token, its `Host` is an address or `localhost`, and
//! no other site caused it (`docs/dashboard.md` section 4). Everything else gets 403 or 404 without a reason.

use std::fmt::Debug;
use std::io;
use std::net::{Ipv6Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::thread::JoinHandle;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, FromRequest, Path, Request, State};
use axum::http::header::{self, HeaderMap, HeaderName, HeaderValue};
use axum::http::{Method, StatusCode};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use futures_core::Stream;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use super::replays::{MOST_ASKED, Refusal, Replays};
use super::{PageError, files};
use crate::http::{Bounded, is_own_host, one_request};

/// Bytes of a token. Chosen: nobody guesses 128 bits.
const TOKEN_BYTES: usize = 16;
/// Connections of pages. Chosen: several pages, each with the six connections of a browser.
const MOST: usize = 48;

/// Time for the body of a request. Chosen: that for its head. A body that came byte by byte would hold a
/// connection for hours.
const BODY: Duration = Duration::from_secs(2);

/// Most bytes of a message that are handed to the connection at once: it copies them, and would hold all that
/// a page which does not read gets first. Chosen.
const PIECE: usize = 64 << 10;

/// Where pages get the frames of the channel.
pub trait Source: Debug + Send + Sync {
    /// The frames for a page that opens now. `None` if there are too many pages.
    fn open(&self) -> Option<Frames>;

    /// What runs recorded flows again. A job has none.
    fn replays(&self) -> Option<&Replays> {
        None
    }
}

/// A port that waits, and the token of its address.
#[derive(Debug)]
pub struct Port {
    listener: std::net::TcpListener,
    address: SocketAddr,
    token: String,
}

impl Port {
    /// Takes the port.
    ///
    /// # Errors
    /// [`PageError::Port`] if it is taken, or the system refuses it.
    pub fn take(address: SocketAddr) -> Result<Self, PageError> {
        let bound = std::net::TcpListener::bind(address).and_then(|listener| {
            listener.set_nonblocking(true)?;
            let address = listener.local_addr()?;
            Ok((listener, address))
        });
        let (listener, address) = bound.map_err(|error| PageError::Port { address, error })?;
        let mut random = [0; TOKEN_BYTES];
        getrandom::fill(&mut random).map_err(|error| PageError::System(error.into()))?;
        let token = random.iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(Self { listener, address, token })
    }

    /// The address of the page, with the token.
    pub fn url(&self) -> String {
        let mut address = self.address;
        if address.ip().is_unspecified() {
            // Any address of this machine; this one always works.
            address.set_ip(if address.is_ipv4() { [127, 0, 0, 1].into() } else { Ipv6Addr::LOCALHOST.into() });
        }
        format!("http://{address}/{}/", self.token)
    }

    /// Serves `source` until the result is dropped.
    ///
    /// # Errors
    /// [`PageError::System`] if the system has no more threads.
    pub fn serve(self, source: Arc<dyn Source>) -> Result<Serving, PageError> {
        self.start(source).map_err(PageError::System)
    }

    fn start(self, source: Arc<dyn Source>) -> io::Result<Serving> {
        let (stop, stopped) = oneshot::channel::<()>();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let serve = move || {
            runtime.block_on(async move {
                let Ok(listener) = tokio::net::TcpListener::from_std(self.listener) else { return };
                let site = Arc::new(Site { token: blake3::hash(self.token.as_bytes()), source });
                tokio::select! {
                    _ = axum::serve(Bounded::new(listener, MOST), router(site)).into_future() => {}
                    _ = stopped => {}
                }
            });
        };
        let thread = std::thread::Builder::new().name("dashboard".into()).spawn(serve)?;
        Ok(Serving { stop: Some(stop), thread: Some(thread) })
    }
}

/// A server that runs until this is dropped.
#[derive(Debug)]
pub struct Serving {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Serving {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A server that panicked has already printed why.
            let _ = thread.join();
        }
    }
}

/// What a request is checked against. Hashes are compared in constant time.
#[derive(Debug)]
struct Site {
    token: blake3::Hash,
    source: Arc<dyn Source>,
}

fn router(site: Arc<Site>) -> Router {
    Router::new()
        .route("/{token}/", get(|| async { files::answer("index.html") }))
        .route("/{token}/stream", get(stream))
        .route("/{token}/replay", post(replay).layer(DefaultBodyLimit::max(MOST_ASKED)))
        .route("/{token}/{*path}", get(|Path((_, path)): Path<(String, String)>| async move { files::answer(&path) }))
        .layer(middleware::from_fn_with_state(Arc::clone(&site), guard))
        .layer(middleware::map_response(one_request))
        .with_state(site)
}

/// Refuses what is not asked by our own page or by the user, and adds the headers that every answer has.
async fn guard(State(site): State<Arc<Site>>, request: Request, next: Next) -> Response {
    let first = request.uri().path().split('/').nth(1).unwrap_or_default();
    let mut response = if !is_own(request.headers()) {
        StatusCode::FORBIDDEN.into_response()
    } else if blake3::hash(first.as_bytes()) != site.token || !is_known(&request) {
        StatusCode::NOT_FOUND.into_response()
    } else {
        next.run(request).await
    };
    let headers = response.headers_mut();
    for (name, value) in HEADERS {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

/// Whether a request only reads, or asks for a replay.
fn is_known(request: &Request) -> bool {
    let path = request.uri().path();
    match *request.method() {
        Method::GET | Method::HEAD => true,
        Method::POST => path.split('/').skip(2).eq(["replay"]),
        _ => false,
    }
}

/// Whether the user or our own page made a request, and none of another site.
fn is_own(headers: &HeaderMap) -> bool {
    let text = |name: HeaderName| headers.get(name).map(|value| value.to_str().unwrap_or("?"));
    let Some(host) = text(header::HOST) else { return false };
    let same_origin = text(header::ORIGIN).is_none_or(|origin| origin.strip_prefix("http://") == Some(host));
    // Browsers tell which site caused a request. A link to us is followed as a navigation.
    let fetch = |name| text(HeaderName::from_static(name));
    let same_site = fetch("sec-fetch-site").is_none_or(|site| matches!(site, "same-origin" | "none"));
    let navigates = fetch("sec-fetch-mode") == Some("navigate") && fetch("sec-fetch-dest") == Some("document");
    is_own_host(host) && same_origin && (same_site || navigates)
}

/// Answers with the channel.
async fn stream(State(site): State<Arc<Site>>) -> Response {
    match site.source.open() {
        Some(frames) => {
            let body = Body::from_stream(frames);
            ([(header::CONTENT_TYPE, "application/octet-stream")], body).into_response()
        }
        None => StatusCode::SERVICE_UNAVAILABLE.into_response(),
    }
}

/// Runs a recorded flow again. The answer tells its progress and its rows line by line.
async fn replay(State(site): State<Arc<Site>>, request: Request) -> Response {
    let asked = match body(request, BODY).await {
        Ok(asked) => asked,
        Err(refused) => return refused,
    };
    match site.source.replays().map(|replays| replays.start(&asked)) {
        Some(Ok(lines)) => ([(header::CONTENT_TYPE, "application/x-ndjson")], Body::from_stream(lines)).into_response(),
        Some(Err(Refusal::Wrong(sentence))) => (StatusCode::BAD_REQUEST, sentence).into_response(),
        Some(Err(Refusal::Busy)) => (StatusCode::SERVICE_UNAVAILABLE, Refusal::BUSY).into_response(),
        None => StatusCode::NOT_FOUND.into_response(),
    }
}

/// The body of a request, which has to come within `patience`. The error is the answer.
async fn body(request: Request, patience: Duration) -> Result<Bytes, Response> {
    match timeout(patience, Bytes::from_request(request, &())).await {
        Ok(read) => read.map_err(IntoResponse::into_response),
        Err(_) => Err(StatusCode::REQUEST_TIMEOUT.into_response()),
    }
}

/// The frames of a page as the body of an answer.
#[derive(Debug)]
pub struct Frames {
    waiting: mpsc::Receiver<Bytes>,
    /// What is left of the message that is being sent.
    rest: Bytes,
    _presence: Arc<()>,
}

impl Frames {
    /// What comes through `waiting`. The source counts `presence` to know who still reads.
    pub fn new(waiting: mpsc::Receiver<Bytes>, presence: Arc<()>) -> Self {
        Self { waiting, rest: Bytes::new(), _presence: presence }
    }

    /// The next piece, if there is one.
    #[cfg(test)]
    pub fn try_recv(&mut self) -> Result<Bytes, mpsc::error::TryRecvError> {
        self.waiting.try_recv()
    }
}

impl Stream for Frames {
    type Item = Result<Bytes, std::convert::Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.rest.is_empty() {
            let Some(frames) = ready!(self.waiting.poll_recv(cx)) else { return Poll::Ready(None) };
            self.rest = frames;
        }
        let piece = self.rest.len().min(PIECE);
        Poll::Ready(Some(Ok(self.rest.split_to(piece))))
    }
}

/// Headers of every answer. Scripts, styles and requests come from this server only, no inline script runs,
/// no other page frames this one, and the address with its token goes to nobody.
const HEADERS: [(HeaderName, &str); 7] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::CACHE_CONTROL, "no-store"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    (HeaderName::from_static("x-frame-options"), "DENY"),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn own(pairs: &[(&'static str, &str)]) -> bool {
        let header = |&(name, value): &(&'static str, &str)| {
            (HeaderName::from_static(name), HeaderValue::from_str(value).unwrap())
        };
        is_own(&pairs.iter().map(header).collect())
    }

    #[test]
    fn a_request_names_this_machine() {
        assert!(own(&[("host", "127.0.0.1:8080")]));
        assert!(!own(&[("host", "rebound.example:8080")]) && !own(&[]));
    }

    #[test]
    fn other_origins_are_refused() {
        let host = ("host", "127.0.0.1:8080");
        assert!(own(&[host, ("origin", "http://127.0.0.1:8080"), ("sec-fetch-site", "same-origin")]));
        for origin in ["http://127.0.0.1:8081", "https://127.0.0.1:8080", "null", "http://evil.example"] {
            assert!(!own(&[host, ("origin", origin)]), "{origin}");
        }
        assert!(!own(&[host, ("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "no-cors")]));
        assert!(!own(&[
            host,
            ("sec-fetch-site", "cross-site"),
            ("sec-fetch-mode", "navigate"),
            ("sec-fetch-dest", "iframe")
        ]));
        // The user follows a link in another page.
        assert!(own(&[
            host,
            ("sec-fetch-site", "cross-site"),
            ("sec-fetch-mode", "navigate"),
            ("sec-fetch-dest", "document")
        ]));
    }

    /// A body of one byte, after which nothing comes.
    struct Endless(bool);

    impl Stream for Endless {
        type Item = Result<Bytes, std::convert::Infallible>;

        fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
            if std::mem::replace(&mut self.0, true) { Poll::Pending } else { Poll::Ready(Some(Ok("{".into()))) }
        }
    }

    #[tokio::test]
    async fn a_body_that_never_ends_is_refused() {
        let request = Request::new(Body::from_stream(Endless(false)));
        let refused = body(request, Duration::from_millis(10)).await.unwrap_err();
        assert_eq!(refused.status(), StatusCode::REQUEST_TIMEOUT);
        let whole = body(Request::new(Body::from("{}")), BODY).await.unwrap();
        assert_eq!(&whole[..], b"{}");
    }

    #[test]
    fn an_address_has_a_token_of_its_own() {
        let take = || Port::take(([127, 0, 0, 1], 0).into()).unwrap();
        let (a, b) = (take(), take());
        assert_eq!(a.token.len(), 2 * TOKEN_BYTES);
        assert_ne!(a.token, b.token);
        assert!(matches!(Port::take(a.address), Err(PageError::Port { address, .. }) if address == a.address));
    }
}
