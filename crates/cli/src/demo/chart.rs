//! A small chart for a terminal, in block characters.

use std::fmt::Write as _;

/// Number of columns, without the scale.
pub(super) const WIDTH: usize = 60;

/// Eighths of a row.
const BLOCKS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// One quantity over time, as columns from the left.
#[derive(Debug)]
pub(super) struct Panel<'a> {
    /// What is drawn, with its unit.
    pub(super) title: &'a str,
    /// Rows.
    pub(super) height: usize,
    /// The values; a column is blank only where its value is zero.
    pub(super) values: &'a [u64],
    /// The value at the upper edge of the top row.
    pub(super) top: u64,
}

impl Panel<'_> {
    /// The lines of the chart, each terminated.
    pub(super) fn draw(&self) -> String {
        let eighths: Vec<usize> = self
            .values
            .iter()
            .map(|&value| self.eighths(value))
            .collect();
        let mut text = format!("{}\n", self.title);
        for row in (0..self.height).rev() {
            let label = if row + 1 == self.height {
                number(self.top)
            } else if row == 0 {
                "0".to_owned()
            } else {
                String::new()
            };
            let line: String = eighths
                .iter()
                .map(|&filled| BLOCKS[filled.saturating_sub(row * 8).min(8)])
                .collect();
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{label:>8} ┤{}", line.trim_end());
        }
        text
    }

    /// Eighths of a row that a value fills: at least one unless it is zero.
    fn eighths(&self, value: u64) -> usize {
        let all = self.height as u64 * 8;
        let top = self.top.max(1);
        let filled = (u128::from(value) * u128::from(all)).div_ceil(u128::from(top));
        usize::try_from(filled)
            .unwrap_or(usize::MAX)
            .min(all as usize)
    }
}

/// The time axis under the panels: ticks at whole seconds.
pub(super) fn axis(seconds: f64) -> String {
    let mut line = vec!['─'; WIDTH];
    let mut labels = vec![' '; WIDTH + 4];
    let last = seconds.floor() as u32;
    let step = (last / 6).max(1);
    for second in (0..=last).step_by(step as usize) {
        let column = (f64::from(second) / seconds.max(0.001) * WIDTH as f64) as usize;
        if column >= WIDTH {
            break;
        }
        line[column] = '┴';
        for (i, c) in format!("{second} s").chars().enumerate() {
            labels[column + i] = c;
        }
    }
    let line: String = line.into_iter().collect();
    let labels: String = labels.into_iter().collect();
    format!("{:>8} └{line}\n{:>10}{}\n", "", "", labels.trim_end())
}

/// Bytes in kB.
fn number(bytes: u64) -> String {
    format!("{} kB", bytes.div_ceil(1_000))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bar_heights_follow_values_and_zero_is_blank() {
        let panel = Panel {
            title: "window",
            height: 2,
            values: &[0, 1, 8_000, 12_000, 16_000, 99_000],
            top: 16_000,
        };
        assert_eq!(panel.draw(), "window\n   16 kB ┤   ▄██\n       0 ┤ ▁████\n");
    }

    #[test]
    fn axis_has_one_tick_per_second() {
        let axis = axis(4.0);
        let labels = axis.lines().nth(1).unwrap();
        assert_eq!(
            labels.split_whitespace().collect::<Vec<_>>().join(" "),
            "0 s 1 s 2 s 3 s"
        );
        assert_eq!(axis.lines().next().unwrap().matches('┴').count(), 4);
        assert_eq!(labels.find("1 s"), Some(10 + WIDTH / 4));
    }

    #[test]
    fn chart_of_any_duration_can_be_drawn() {
        for seconds in [0.0, 0.01, 1.0, 29.99, 30.0, 3_600.0] {
            assert_eq!(axis(seconds).lines().count(), 2, "{seconds}");
        }
        let panel = Panel {
            title: "",
            height: 1,
            values: &[0, u64::MAX],
            top: 0,
        };
        assert!(panel.draw().ends_with("┤ █\n"));
    }
}
