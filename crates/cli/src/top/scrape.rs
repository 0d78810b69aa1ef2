//! Asks a job for its figures, and reads the OpenMetrics text that it answers.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Time that a connection, and each read, may take. Chosen: longer than a busy machine needs.
const PATIENCE: Duration = Duration::from_secs(2);
/// Longest answer that is read. Chosen: fifty times what a job answers.
const MOST_BYTES: u64 = 1 << 20;

/// Values of all time series, by name and labels as they stand in the text: `name{label="value"}`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scrape(BTreeMap<String, f64>);

/// Why there are no figures.
#[derive(Debug, thiserror::Error)]
pub enum ScrapeError {
    /// Nothing answers, or the answer was cut off.
    #[error("{0}")]
    Io(io::Error),
    /// The answer is not the figures of a job; carries its first line.
    #[error("the answer is not the figures of a job: {0:?}")]
    Foreign(String),
}

impl From<io::Error> for ScrapeError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl Scrape {
    /// Asks the job at `address`.
    ///
    /// # Errors
    /// Nothing answers, or something else does.
    pub fn fetch(address: SocketAddr) -> Result<Self, ScrapeError> {
        let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        // Of HTTP 1.0, so that the answer is one piece and ends with the connection.
        write!(stream, "GET /metrics HTTP/1.0\r\nHost: {address}\r\n\r\n")?;
        let mut answer = Vec::new();
        stream.take(MOST_BYTES).read_to_end(&mut answer)?;
        let answer = String::from_utf8_lossy(&answer);
        let is_ok = answer.split(' ').nth(1) == Some("200");
        let body = answer.split_once("\r\n\r\n").filter(|_| is_ok).map(|(_, body)| body);
        let scrape = body.and_then(Self::parse);
        scrape.ok_or_else(|| ScrapeError::Foreign(answer.lines().next().unwrap_or_default().chars().take(80).collect()))
    }

    /// Reads OpenMetrics text. `None` if it is cut off or is not of a job.
    pub fn parse(text: &str) -> Option<Self> {
        let mut values = BTreeMap::new();
        let mut is_whole = false;
        for line in text.lines() {
            is_whole = line == "# EOF";
            // A label never holds a space here, but the value of another program's label may.
            if let Some((series, value)) = line.rsplit_once(' ').filter(|_| !line.starts_with('#')) {
                values.insert(series.to_owned(), value.parse().ok()?);
            }
        }
        (is_whole && values.contains_key("tidewire_connections")).then_some(Self(values))
    }

    /// The value of a series; 0 if it is not there, as for a counter that has not counted.
    pub fn value(&self, series: &str) -> f64 {
        self.0.get(series).copied().unwrap_or_default()
    }

    /// The value of a label of the first series of a metric.
    pub fn label(&self, metric: &str, label: &str) -> Option<&str> {
        let begins = format!("{metric}{{");
        let series = self.0.keys().find(|series| series.starts_with(&begins))?;
        let (_, rest) = series.split_once(&format!("{label}=\""))?;
        rest.split_once('"').map(|(value, _)| value)
    }

    /// Slots of connections that report their state, in order.
    pub fn slots(&self) -> Vec<u32> {
        let slot = |series: &String| {
            series.strip_prefix("tidewire_path_rtt_seconds{slot=\"")?.strip_suffix("\"}")?.parse().ok()
        };
        let mut slots: Vec<_> = self.0.keys().filter_map(slot).collect();
        slots.sort_unstable();
        slots
    }

    /// The phase of rate control of the connection in a slot.
    pub fn state(&self, slot: u32) -> Option<&str> {
        let begins = format!("tidewire_rate_control_state{{slot=\"{slot}\",state=\"");
        self.0.keys().find_map(|series| series.strip_prefix(&begins)?.strip_suffix("\"}"))
    }

    /// Upper bounds and cumulative counts of a histogram, from the lowest bound to infinity.
    pub fn buckets(&self, metric: &str) -> Vec<(f64, f64)> {
        let begins = format!("{metric}_bucket{{le=\"");
        let bucket = |(series, count): (&String, &f64)| {
            let bound = series.strip_prefix(&begins)?.strip_suffix("\"}")?;
            let bound = if bound == "+Inf" { f64::INFINITY } else { bound.parse().ok()? };
            Some((bound, *count))
        };
        let mut buckets: Vec<_> = self.0.iter().filter_map(bucket).collect();
        buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
        buckets
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::net::TcpListener;

    use super::*;

    const TEXT: &str = "# HELP tidewire_connections Connections that are established.\n\
        # TYPE tidewire_connections gauge\ntidewire_connections 2\n\
        tidewire_build_info{version=\"0.1.0\",verb=\"bench\"} 1\n\
        tidewire_path_rtt_seconds{slot=\"11\"} 0.06\ntidewire_path_rtt_seconds{slot=\"2\"} 0.05\n\
        tidewire_in_order_delay_seconds_bucket{le=\"+Inf\"} 10\n\
        tidewire_in_order_delay_seconds_bucket{le=\"0.01\"} 8\n\
        tidewire_in_order_delay_seconds_bucket{le=\"0.005\"} 4\n# EOF\n";

    #[test]
    fn series_labels_slots_and_buckets_are_read() {
        let scrape = Scrape::parse(TEXT).unwrap();
        assert_eq!((scrape.value("tidewire_connections"), scrape.value("tidewire_none")), (2.0, 0.0));
        assert_eq!(scrape.label("tidewire_build_info", "verb"), Some("bench"));
        assert_eq!(scrape.slots(), [2, 11]);
        let delay = scrape.buckets("tidewire_in_order_delay_seconds");
        assert_eq!(delay, [(0.005, 4.0), (0.01, 8.0), (f64::INFINITY, 10.0)]);
    }

    #[test]
    fn cut_off_and_foreign_text_is_refused() {
        assert_eq!(Scrape::parse(TEXT.strip_suffix("# EOF\n").unwrap()), None);
        assert_eq!(Scrape::parse("up 1\n# EOF\n"), None);
        assert_eq!(Scrape::parse(&TEXT.replace("connections 2", "connections two")), None);
        assert_eq!(Scrape::parse(""), None);
    }

    /// Answers one request with `answer`.
    fn server(answer: &'static str) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let lines = BufReader::new(stream.try_clone().unwrap()).lines();
            lines.map_while(Result::ok).take_while(|line| !line.is_empty()).for_each(drop);
            stream.write_all(answer.as_bytes()).unwrap();
        });
        address
    }

    #[test]
    fn other_servers_are_named_by_what_they_answer() {
        let foreign = |answer| Scrape::fetch(server(answer)).unwrap_err().to_string();
        assert!(foreign("HTTP/1.0 404 Not Found\r\n\r\nno").contains("\"HTTP/1.0 404 Not Found\""));
        assert!(foreign("SSH-2.0-OpenSSH\r\n").contains("SSH-2.0"));
        assert!(foreign("HTTP/1.0 200 OK\r\n\r\nup 1\n# EOF\n").contains("not the figures of a job"));
    }
}
