//! Draws the figures of a job.

use ratatui::Frame;
use ratatui::backend::TestBackend;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Block, Paragraph, Row, Sparkline, Table};
use tidewire_command::report::rate;

use super::Figures;

/// Size of a picture without a terminal. Chosen: what most terminals have at least, and room for all figures.
const PLAIN: (u16, u16) = (100, 30);

/// What to draw.
#[derive(Debug)]
pub struct Shown<'a> {
    /// The answers of the watched job.
    pub figures: &'a Figures,
    /// Where they come from.
    pub source: &'a str,
    /// Why there are no newer ones.
    pub fault: Option<&'a str>,
}

impl Shown<'_> {
    /// Fills `frame`.
    pub fn draw(&self, frame: &mut Frame<'_>) {
        let areas = Layout::vertical([
            Constraint::Length(2),
            Constraint::Length(6),
            Constraint::Length(5),
            Constraint::Length(4),
            Constraint::Min(3),
        ]);
        let [head, traffic, packets, delay, connections] = areas.areas(frame.area());
        frame.render_widget(self.head(), head);
        self.traffic(frame, traffic);
        frame.render_widget(self.packets(), packets);
        frame.render_widget(self.delay(), delay);
        frame.render_widget(self.connections(), connections);
    }

    /// The same as text without colours.
    ///
    /// # Panics
    /// Does not panic: a picture in memory has no errors.
    pub fn plain(&self) -> String {
        let (width, height) = PLAIN;
        let mut terminal = ratatui::Terminal::new(TestBackend::new(width, height)).expect("memory has no errors");
        terminal.draw(|frame| self.draw(frame)).expect("memory has no errors");
        let buffer = terminal.backend().buffer();
        let line = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
        let lines: Vec<_> = (0..height).map(|y| line(y).trim_end().to_owned()).collect();
        lines.join("\n").trim_end().to_owned() + "\n"
    }

    fn head(&self) -> Paragraph<'_> {
        let newest = self.figures.newest();
        let label = |label| newest.label("tidewire_build_info", label).unwrap_or("?");
        let job = format!("tidewire {} {} at {}", label("verb"), label("version"), self.source);
        let open = newest.value("tidewire_connections");
        let all = newest.value("tidewire_connections_opened_total");
        let counts = format!("{open} of {all} connections are open    q: quit");
        let second = self.fault.map_or(counts, |fault| format!("no newer figures: {fault}    q: quit"));
        Paragraph::new(vec![Line::styled(job, Style::new().add_modifier(Modifier::BOLD)), Line::raw(second)])
    }

    fn traffic(&self, frame: &mut Frame<'_>, area: Rect) {
        let [sent, received] = Layout::horizontal([Constraint::Fill(1), Constraint::Fill(1)]).areas(area);
        for (name, series, area) in
            [("sent", "tidewire_sent_bytes_total", sent), ("received", "tidewire_received_bytes_total", received)]
        {
            let now = self.figures.rate(series).map_or_else(|| "-".into(), |bytes| rate(8.0 * bytes));
            let width = usize::from(area.width.saturating_sub(2));
            let mut data: Vec<_> = self.figures.rates(series).rev().take(width).map(|rate| rate as u64).collect();
            data.reverse();
            let block = Block::bordered().title(format!(" {name} {now} "));
            frame.render_widget(Sparkline::default().block(block).data(data), area);
        }
    }

    fn packets(&self) -> Paragraph<'_> {
        let of = |series: String| self.figures.rate(&series);
        let sent = |kind: &str| number(of(format!("tidewire_packets_sent_total{{kind=\"{kind}\"}}")));
        let total = |name: &str| self.figures.rate(&format!("tidewire_packets_{name}_total"));
        let (lost, acknowledged) = (total("lost"), total("acknowledged"));
        let share = lost.zip(acknowledged).filter(|(lost, acknowledged)| lost + acknowledged > 0.0);
        let share = share.map_or_else(|| "-".into(), |(lost, acked)| percent(lost / (lost + acked)));
        let lines = vec![
            Line::raw(format!(
                "source {}   again {}   repair {}   feedback repair {}   control {}",
                sent("source"),
                sent("source_again"),
                sent("repair"),
                sent("feedback_repair"),
                sent("control")
            )),
            Line::raw(format!(
                "acknowledged {}   lost {} ({share})   dropped at our own rate {}   late {}",
                number(acknowledged),
                number(lost),
                number(total("dropped_at_own_rate")),
                number(total("late"))
            )),
            Line::raw(format!("received and not needed {}", number(total("redundant")))),
        ];
        Paragraph::new(lines).block(Block::bordered().title(" packets per second "))
    }

    fn delay(&self) -> Paragraph<'_> {
        let quantile =
            |metric: &str, quantile| self.figures.quantile(metric, quantile).map_or_else(|| "-".into(), milliseconds);
        let delay = |of| quantile("tidewire_in_order_delay_seconds", of);
        let passed =
            |kind: &str| number(self.figures.rate(&format!("tidewire_symbols_passed_total{{kind=\"{kind}\"}}")));
        let lines = vec![
            Line::raw(format!(
                "p50 {}   p90 {}   p99 {}   queueing p50 {}",
                delay(0.5),
                delay(0.9),
                delay(0.99),
                quantile("tidewire_queueing_seconds", 0.5)
            )),
            Line::raw(format!(
                "symbols per second: direct {}   repaired {}   resent {}   given up {}",
                passed("direct"),
                passed("repaired"),
                passed("resent"),
                passed("given_up")
            )),
        ];
        Paragraph::new(lines).block(Block::bordered().title(" in-order delay, last 10 s "))
    }

    fn connections(&self) -> Table<'_> {
        let newest = self.figures.newest();
        let row = |slot: u32| {
            let value = |name: &str| newest.value(&format!("tidewire_{name}{{slot=\"{slot}\"}}"));
            Row::new(vec![
                slot.to_string(),
                milliseconds(value("path_rtt_seconds")),
                milliseconds(value("path_least_rtt_seconds")),
                milliseconds(value("path_queueing_seconds")),
                percent(value("path_loss_ratio")),
                percent(value("planned_redundancy_ratio")),
                rate(8.0 * value("pacing_bytes_per_second")),
                format!("{:.0} kB", value("congestion_window_bytes") / 1_000.0),
                format!("{:.0} kB", value("in_flight_bytes") / 1_000.0),
                newest.state(slot).unwrap_or_default().to_owned(),
            ])
        };
        let widths = [4, 9, 9, 9, 7, 7, 12, 8, 9, 13].map(Constraint::Length);
        let names = ["slot", "RTT", "least", "queueing", "loss", "repair", "pacing", "window", "in flight", "state"];
        let missed = newest.value("tidewire_events_missed_total");
        let title = match missed > 0.0 {
            true => format!(" connections; {missed} events are missing from all figures "),
            false => " connections ".into(),
        };
        let header = Row::new(names).style(Style::new().add_modifier(Modifier::BOLD));
        Table::new(newest.slots().into_iter().map(row), widths).header(header).block(Block::bordered().title(title))
    }
}

fn number(rate: Option<f64>) -> String {
    rate.map_or_else(|| "-".into(), |rate| format!("{rate:.0}"))
}

fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

fn milliseconds(seconds: f64) -> String {
    format!("{:.1} ms", 1_000.0 * seconds)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::tests::scrape;
    use super::*;

    fn figures() -> Figures {
        let text = |seconds: u64| {
            format!(
                "tidewire_build_info{{version=\"0.1.0\",verb=\"bench\"}} 1\n\
                 tidewire_connections_opened_total 3\n\
                 tidewire_sent_bytes_total {}\n\
                 tidewire_packets_sent_total{{kind=\"source\"}} {}\n\
                 tidewire_packets_lost_total {}\ntidewire_packets_acknowledged_total {}\n\
                 tidewire_packets_dropped_at_own_rate_total {}\n\
                 tidewire_rate_control_state{{slot=\"0\",state=\"cruise\"}} 1\n\
                 tidewire_in_order_delay_seconds_bucket{{le=\"0.01\"}} {}\n\
                 tidewire_in_order_delay_seconds_bucket{{le=\"+Inf\"}} {}\n\
                 tidewire_path_rtt_seconds{{slot=\"0\"}} 0.0605\n\
                 tidewire_path_loss_ratio{{slot=\"0\"}} 0.05\n\
                 tidewire_pacing_bytes_per_second{{slot=\"0\"}} 3125000",
                1_250_000 * seconds,
                1_000 * seconds,
                50 * seconds,
                950 * seconds,
                20 * seconds,
                100 * seconds,
                100 * seconds
            )
        };
        let mut figures = Figures::new(scrape(&text(0)));
        (1..8).for_each(|second| figures.push(Duration::from_secs(second), scrape(&text(second))));
        figures
    }

    #[test]
    fn the_picture_has_the_figures_of_the_job() {
        let figures = figures();
        let text = Shown { figures: &figures, source: "127.0.0.1:9464", fault: None }.plain();
        for wanted in [
            "tidewire bench 0.1.0 at 127.0.0.1:9464",
            "1 of 3 connections are open",
            " sent 10.0 Mbit/s ",
            " received 0.0 bit/s ",
            "source 1000 ",
            "acknowledged 950   lost 50 (5.0 %)   dropped at our own rate 20 ",
            " cruise",
            "p50 5.0 ms   p90 9.0 ms   p99 9.9 ms",
            "60.5 ms",
            "25.0 Mbit/s",
        ] {
            assert!(text.contains(wanted), "no {wanted:?} in\n{text}");
        }
        assert!(text.contains('█'), "no history in\n{text}");
    }

    #[test]
    fn a_fault_is_shown_and_a_small_terminal_is_no_fault() {
        let figures = figures();
        let shown = Shown { figures: &figures, source: "127.0.0.1:9464", fault: Some("connection refused") };
        assert!(shown.plain().contains("no newer figures: connection refused"));
        for (width, height) in [(1, 1), (20, 5), (300, 100)] {
            let mut terminal = ratatui::Terminal::new(TestBackend::new(width, height)).unwrap();
            terminal.draw(|frame| shown.draw(frame)).unwrap();
        }
    }

    #[test]
    fn text_of_another_program_reaches_no_terminal_as_control_bytes() {
        let hostile = scrape("tidewire_build_info{version=\"\u{1b}]0;x\u{7}\",verb=\"\u{1b}[2J\"} 1");
        let figures = Figures::new(hostile);
        let text = Shown { figures: &figures, source: "x", fault: Some("\u{1b}[31m") }.plain();
        assert!(!text.chars().any(|c| c.is_control() && c != '\n'), "{text:?}");
    }
}
