//! A panel of the picture: a title, two axes, and what is drawn between them.

use super::svg::{Anchor, GRID, INK, Svg};

/// An axis: what it tells, and its marks. The first and the last mark are its ends.
#[derive(Debug)]
pub struct Axis {
    pub label: &'static str,
    pub marks: Vec<(f64, String)>,
    /// Equal distances are equal factors.
    pub logarithmic: bool,
}

impl Axis {
    /// An axis with these marks.
    pub fn new(label: &'static str, marks: &[f64], write: impl Fn(f64) -> String) -> Self {
        Self {
            label,
            marks: marks.iter().map(|mark| (*mark, write(*mark))).collect(),
            logarithmic: false,
        }
    }

    /// The same axis, logarithmic.
    pub fn logarithmic(self) -> Self {
        Self {
            logarithmic: true,
            ..self
        }
    }

    /// Where a value lies, from 0 to 1; what is beyond the ends lies on them.
    fn part(&self, value: f64) -> f64 {
        let (first, last) = (self.marks[0].0, self.marks[self.marks.len() - 1].0);
        let value = value.clamp(first, last);
        if self.logarithmic {
            (value / first).ln() / (last / first).ln()
        } else {
            (value - first) / (last - first)
        }
    }
}

/// The place and the axes of a panel.
#[derive(Debug)]
pub struct Panel {
    pub left: f64,
    pub top: f64,
    pub width: f64,
    pub height: f64,
    pub x: Axis,
    /// None where the height tells nothing but which row it is.
    pub y: Option<Axis>,
}

impl Panel {
    /// Where a value of the horizontal axis lies.
    pub fn at_x(&self, value: f64) -> f64 {
        self.left + self.width * self.x.part(value)
    }

    /// Where a pair of values lies.
    pub fn at(&self, x: f64, y: f64) -> (f64, f64) {
        let part = self.y.as_ref().map_or(0.0, |axis| axis.part(y));
        (self.at_x(x), self.top + self.height * (1.0 - part))
    }

    /// The middle of a row of so many.
    pub fn row(&self, row: usize, rows: usize) -> f64 {
        self.top + self.height * (row as f64 + 0.5) / rows as f64
    }

    /// The bottom.
    pub fn bottom(&self) -> f64 {
        self.top + self.height
    }

    /// Draws the range of a value on a row.
    pub fn whisker(&self, svg: &mut Svg, y: f64, (least, most): (f64, f64)) {
        let (least, most) = (self.at_x(least), self.at_x(most));
        svg.line((least, y), (most, y), INK, 1.2);
        for end in [least, most] {
            svg.line((end, y - 5.0), (end, y + 5.0), INK, 1.2);
        }
    }

    /// Draws title, grid and axes.
    pub fn frame(&self, svg: &mut Svg, title: &str) {
        let Self {
            left, top, width, ..
        } = *self;
        svg.title((left, top - 14.0), 14, title);
        for (mark, text) in &self.x.marks {
            let x = self.at_x(*mark);
            svg.line((x, top), (x, self.bottom()), GRID, 1.0);
            svg.text((x, self.bottom() + 16.0), Anchor::Middle, text);
        }
        let middle = left + width / 2.0;
        svg.text((middle, self.bottom() + 34.0), Anchor::Middle, self.x.label);
        if let Some(axis) = &self.y {
            for (mark, text) in &axis.marks {
                let (_, y) = self.at(0.0, *mark);
                svg.line((left, y), (left + width, y), GRID, 1.0);
                svg.text((left - 8.0, y + 4.0), Anchor::End, text);
            }
            let middle = top + self.height / 2.0;
            svg.upward((left - 52.0, middle), axis.label);
        }
        svg.line((left, top), (left, self.bottom()), INK, 1.0);
        svg.line(
            (left, self.bottom()),
            (left + width, self.bottom()),
            INK,
            1.0,
        );
    }
}
