//! `tidewire top [ADDR]`: the figures of a running job in a terminal, for machines without a browser.

use std::io::IsTerminal;
use std::net::SocketAddr;
use std::sync::mpsc::{self, Receiver, TryRecvError};
use std::time::{Duration, Instant};

use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyModifiers};
use tidewire_command::exit::{Exit, Failure, OrExit};
use tidewire_command::stdout;

use crate::top::Figures;
use crate::top::scrape::{Scrape, ScrapeError};
use crate::top::view::Shown;
use crate::watch::METRICS_PORT;

/// Least time between two looks. Chosen: the figures of a job change fifty times a second.
const LEAST_INTERVAL: Duration = Duration::from_millis(100);

/// Time between looks for an answer and for keys. Chosen: shorter than a person notices.
const ANSWER_CHECK: Duration = Duration::from_millis(20);

/// Arguments of `top`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Where a job on this or another machine serves its figures (--metrics)
    #[arg(value_name = "ADDR", default_value_t = SocketAddr::from(([127, 0, 0, 1], METRICS_PORT)))]
    address: SocketAddr,
    /// Time between two looks
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = tidewire_units::parse_duration)]
    interval: Duration,
    /// Print one picture as text after one interval, and exit
    #[arg(long)]
    once: bool,
}

/// Shows the figures until the user ends it.
///
/// # Errors
/// [`Exit::Unreachable`] if no job answers, [`Exit::Usage`] without a terminal.
pub fn run(args: &Args) -> Result<(), Failure> {
    let begun = Instant::now();
    let interval = args.interval.max(LEAST_INTERVAL);
    let first = Scrape::fetch(args.address).map_err(|error| unanswered(args.address, &error))?;
    let mut figures = Figures::new(first);
    let source = args.address.to_string();
    if args.once {
        std::thread::sleep(interval);
        let second = Scrape::fetch(args.address).map_err(|error| unanswered(args.address, &error))?;
        figures.push(begun.elapsed(), second);
        let text = Shown { figures: &figures, source: &source, fault: None }.plain();
        stdout::write(&text);
        return Ok(());
    }
    if !std::io::stdout().is_terminal() {
        return Err(Failure::message(Exit::Usage, "`top` needs a terminal; `top --once` prints one picture"));
    }
    let mut terminal = ratatui::try_init().or_exit(Exit::Other)?;
    let ended = show(args.address, interval, &mut terminal, figures, begun);
    ratatui::restore();
    ended
}

fn show(
    address: SocketAddr,
    interval: Duration,
    terminal: &mut ratatui::DefaultTerminal,
    mut figures: Figures,
    begun: Instant,
) -> Result<(), Failure> {
    let (source, mut fault) = (address.to_string(), None);
    let (mut due, mut asked) = (Instant::now() + interval, None);
    loop {
        let shown = Shown { figures: &figures, source: &source, fault: fault.as_deref() };
        terminal.draw(|frame| shown.draw(frame)).or_exit(Exit::Other)?;
        let wait = if asked.is_some() { ANSWER_CHECK } else { due.saturating_duration_since(Instant::now()) };
        if event::poll(wait).or_exit(Exit::Other)? {
            if is_end(&event::read().or_exit(Exit::Other)?) {
                return Ok(());
            }
            continue;
        }
        match asked.get_or_insert_with(|| ask(address)).try_recv() {
            Ok(Ok(scrape)) => {
                figures.push(begun.elapsed(), scrape);
                fault = None;
            }
            Ok(Err(error)) => fault = Some(error.to_string()),
            Err(TryRecvError::Empty) => continue,
            Err(TryRecvError::Disconnected) => fault = Some("the system gives no thread".to_owned()),
        }
        // Asked at most once an interval, however long an answer takes.
        (due, asked) = (Instant::now() + interval, None);
    }
}

/// Asks for the figures in a thread of its own. A job that does not answer then delays no key, and nothing
/// waits for the thread.
fn ask(address: SocketAddr) -> Receiver<Result<Scrape, ScrapeError>> {
    let (tell, told) = mpsc::channel();
    let asking = move || {
        let _ = tell.send(Scrape::fetch(address));
    };
    // Without a thread, the sender is dropped, which the receiver sees.
    let _ = std::thread::Builder::new().name("scrape".into()).spawn(asking);
    told
}

/// Whether the user ends the display. A terminal in raw mode gives Ctrl-C as a key.
fn is_end(event: &Event) -> bool {
    let Event::Key(KeyEvent { code, modifiers, .. }) = event else { return false };
    match code {
        KeyCode::Char('q') | KeyCode::Esc => true,
        KeyCode::Char('c') => modifiers.contains(KeyModifiers::CONTROL),
        _ => false,
    }
}

fn unanswered(address: SocketAddr, error: &ScrapeError) -> Failure {
    let text = format!("no job answers at {address}: {error}; start it with --metrics {address}");
    Failure::message(Exit::Unreachable, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_that_does_not_answer_delays_no_key() {
        // It accepts, and says nothing.
        let job = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let asked = ask(job.local_addr().unwrap());
        let held = job.accept().unwrap();
        assert!(matches!(asked.try_recv(), Err(TryRecvError::Empty)));
        drop((held, job));
        assert!(asked.recv().unwrap().is_err(), "its end is an answer");
    }
}
