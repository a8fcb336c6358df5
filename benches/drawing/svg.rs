//! Drawing in SVG.

use std::fmt::Write as _;

/// The colour of text and axes, of grid lines, and of what is in the background.
pub const INK: &str = "#333333";
pub const GRID: &str = "#e3e3e3";
pub const PALE: &str = "#f4ece2";

/// Where a text stands to its point.
#[derive(Clone, Copy, Debug)]
pub enum Anchor {
    Start,
    Middle,
    End,
}

/// A drawing.
#[derive(Debug)]
pub struct Svg {
    width: f64,
    height: f64,
    body: String,
}

impl Svg {
    /// An empty white drawing.
    pub fn new(width: f64, height: f64) -> Self {
        let mut svg = Self {
            width,
            height,
            body: String::new(),
        };
        svg.rect((0.0, 0.0), (width, height), "#ffffff");
        svg
    }

    /// A filled rectangle.
    pub fn rect(&mut self, (x, y): (f64, f64), (width, height): (f64, f64), fill: &str) {
        self.add(format_args!(
            r#"<rect x="{x:.1}" y="{y:.1}" width="{width:.1}" height="{height:.1}" fill="{fill}"/>"#
        ));
    }

    /// A straight line.
    pub fn line(&mut self, from: (f64, f64), to: (f64, f64), colour: &str, width: f64) {
        self.path(&[from, to], colour, width);
    }

    /// A line through points.
    pub fn curve(&mut self, points: &[(f64, f64)], colour: &str) {
        self.path(points, colour, 2.2);
    }

    fn path(&mut self, points: &[(f64, f64)], colour: &str, width: f64) {
        let points: Vec<_> = points
            .iter()
            .map(|(x, y)| format!("{x:.1},{y:.1}"))
            .collect();
        let points = points.join(" ");
        self.add(format_args!(
            r#"<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="{width}" stroke-linejoin="round"/>"#
        ));
    }

    /// A dot; a hollow one shows the background.
    pub fn dot(&mut self, (x, y): (f64, f64), colour: &str, hollow: bool) {
        let fill = if hollow { "#ffffff" } else { colour };
        self.add(format_args!(
            r#"<circle cx="{x:.1}" cy="{y:.1}" r="5" fill="{fill}" stroke="{colour}" stroke-width="2"/>"#
        ));
    }

    /// A text.
    pub fn text(&mut self, (x, y): (f64, f64), anchor: Anchor, text: &str) {
        self.write((x, y), anchor, "", text);
    }

    /// A text that is a title.
    pub fn title(&mut self, (x, y): (f64, f64), size: u32, text: &str) {
        let style = format!(r#" font-size="{size}" font-weight="bold""#);
        self.write((x, y), Anchor::Start, &style, text);
    }

    /// A text from the bottom to the top.
    pub fn upward(&mut self, (x, y): (f64, f64), text: &str) {
        let turn = format!(r#" transform="rotate(-90 {x:.1} {y:.1})""#);
        self.write((x, y), Anchor::Middle, &turn, text);
    }

    fn write(&mut self, (x, y): (f64, f64), anchor: Anchor, style: &str, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let text = text.replace('&', "&amp;").replace('<', "&lt;");
        self.add(format_args!(
            r#"<text x="{x:.1}" y="{y:.1}" text-anchor="{anchor}" fill="{INK}"{style}>{text}</text>"#
        ));
    }

    fn add(&mut self, element: std::fmt::Arguments<'_>) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.body, "{element}");
    }

    /// The whole file.
    pub fn file(&self) -> String {
        let Self {
            width,
            height,
            body,
        } = self;
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
             width=\"{width}\" height=\"{height}\" font-family=\"Helvetica, Arial, sans-serif\" \
             font-size=\"12\">\n{body}</svg>\n"
        )
    }
}
