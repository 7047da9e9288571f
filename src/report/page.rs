//! An HTML page in one file: no scripts, and nothing is fetched. It is written as well-formed XML, all text escaped.

use std::fmt::Write;

use gsplit::chart::{Chart, Colour, NARROW, WIDE, escape, on_page};

/// Stands in the first line of every page.
pub const MAKER: &str = "<!--gsplit report-->";

const STYLE: &str = include_str!("style.css");

/// Nothing but the style sheet, were a text to get out of its place after all.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; img-src data:";

/// A page under construction.
#[derive(Default)]
pub struct Page {
    body: String,
    sections: Vec<String>,
    left_out: Vec<(String, String)>,
    /// Charts of the row under construction.
    row: Vec<Figure>,
}

/// A chart as it is on a page.
struct Figure {
    title: String,
    /// Drawn for half of a desktop's width, or a telephone's; and for the whole width.
    drawn: [String; 2],
    /// Legend and numbers.
    below: String,
}

impl Page {
    /// Adds a section, which `fill` writes.
    pub fn section(&mut self, title: &str, fill: impl FnOnce(&mut Self)) {
        self.sections.push(title.into());
        let (id, title) = (id(title), escape(title));
        self.add(&format!(r#"<section aria-labelledby="{id}"><h2 id="{id}">{title}</h2>"#));
        fill(self);
        self.add("</section>");
    }

    /// Notes that a section is not there, and why: which command would make it.
    pub fn leave_out(&mut self, title: &str, why: impl Into<String>) {
        self.left_out.push((title.into(), why.into()));
    }

    /// A paragraph.
    pub fn text(&mut self, text: &str) {
        self.add(&format!("<p>{}</p>", escape(text)));
    }

    /// Names and what they are, one below the other.
    pub fn facts(&mut self, facts: &[(impl AsRef<str>, String)]) {
        self.add("<dl>");
        for (name, fact) in facts {
            let (name, fact) = (escape(name.as_ref()), escape(fact));
            self.add(&format!("<div><dt>{name}</dt><dd>{fact}</dd></div>"));
        }
        self.add("</dl>");
    }

    /// A table, whose first column names the rows.
    pub fn table(&mut self, caption: &str, head: &[impl AsRef<str>], rows: &[impl AsRef<[String]>]) {
        let table = table(caption, head, rows);
        self.add(&table);
    }

    /// Details that `fill` writes, folded until they are asked for.
    pub fn fold(&mut self, summary: &str, fill: impl FnOnce(&mut Self)) {
        self.add(&format!("<details><summary>{}</summary>", escape(summary)));
        fill(self);
        self.add("</details>");
    }

    /// Charts, side by side where there is room; one alone is drawn for the whole width too.
    pub fn charts(&mut self, fill: impl FnOnce(&mut Self)) {
        fill(self);
        let row = std::mem::take(&mut self.row);
        self.add(r#"<div class="charts">"#);
        for Figure { title, drawn: [narrow, wide], below } in &row {
            let scroll = |class: &str, chart: &String| {
                format!(r#"<div class="{class}scroll" tabindex="0" role="group" aria-label="{title}">{chart}</div>"#)
            };
            let drawn = match row.len() {
                1 => scroll("narrow ", narrow) + "\n" + &scroll("wide ", wide),
                _ => scroll("", narrow),
            };
            self.add(&format!("<figure><figcaption>{title}</figcaption>\n{drawn}\n{below}</figure>"));
        }
        self.add("</div>");
    }

    /// A chart of a row of [`Self::charts`], with its numbers as a table to open.
    pub fn chart(&mut self, title: &str, chart: &dyn Chart) {
        let (head, rows) = chart.table();
        self.chart_with(title, chart, &head, &rows);
    }

    /// A chart, and other numbers than those that it draws.
    pub fn chart_with(&mut self, title: &str, chart: &dyn Chart, head: &[String], rows: &[Vec<String>]) {
        let drawn = [NARROW, WIDE].map(|size| {
            let (svg, width) = on_page(chart, title, size);
            let style = width.map(|width| format!(r#" style="min-width:{:.0}px""#, 0.85 * width)).unwrap_or_default();
            format!("<div{style}>{svg}</div>")
        });
        let mut below = String::new();
        let legend = chart.legend();
        if legend.len() > 1 {
            let entry = |(colour, name): &(Colour, String)| {
                let (fill, opacity, name) = (colour.on_page(), colour.opacity(), escape(name));
                format!(r#"<li><i style="background:{fill};opacity:{opacity}"></i>{name}</li>"#)
            };
            below = format!(r#"<ul class="legend">{}</ul>"#, legend.iter().map(entry).collect::<String>());
        }
        let table = table(title, head, rows);
        below += &format!("<details><summary>Numbers</summary>{table}</details>");
        self.row.push(Figure { title: escape(title), drawn, below });
    }

    /// The finished page about `title`; the titles of its sections; and what was left out.
    pub fn finish(mut self, title: &str, subtitle: &str) -> Finished {
        if !self.left_out.is_empty() {
            self.add(r#"<section aria-labelledby="left-out"><h2 id="left-out">Left out</h2>"#);
            let left_out = std::mem::take(&mut self.left_out);
            self.facts(&left_out);
            self.add("</section>");
            self.left_out = left_out;
        }
        let (title, subtitle) = (escape(title), escape(subtitle));
        let entry = |section: &String| format!(r##"<li><a href="#{}">{}</a></li>"##, id(section), escape(section));
        let contents: String = self.sections.iter().map(entry).collect();
        let head = format!(
            r#"<meta charset="utf-8"/>
<meta http-equiv="Content-Security-Policy" content="{POLICY}"/>
<meta name="viewport" content="width=device-width, initial-scale=1"/>
<meta name="color-scheme" content="light dark"/>
<title>{title}: gsplit report</title>
<link rel="icon" href="data:,"/>
<style>
{STYLE}</style>"#
        );
        let html = format!(
            r#"<!doctype html>{MAKER}
<html lang="en"><head>
{head}
</head><body>
<header><h1>{title}</h1><p>{subtitle}</p>
<nav aria-label="Contents"><ul>{contents}</ul></nav></header>
<main>
{}</main>
</body></html>
"#,
            self.body
        );
        Finished { html, sections: self.sections, left_out: self.left_out }
    }

    fn add(&mut self, html: &str) {
        // Writing to a string does not fail.
        let _ = writeln!(self.body, "{html}");
    }
}

/// A page, and what it has.
pub struct Finished {
    /// The text of the file.
    pub html: String,
    /// Titles of the sections.
    pub sections: Vec<String>,
    /// Titles of those that are not there, and why.
    pub left_out: Vec<(String, String)>,
}

/// The title of a section as the name of a place on the page.
fn id(title: &str) -> String {
    title.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' }).collect()
}

fn table(caption: &str, head: &[impl AsRef<str>], rows: &[impl AsRef<[String]>]) -> String {
    let caption = escape(caption);
    let head = head.iter().map(|name| format!(r#"<th scope="col">{}</th>"#, escape(name.as_ref()))).collect::<String>();
    let row = |row: &[String]| {
        let mut cells = row.iter().map(|cell| escape(cell));
        let name = cells.next().unwrap_or_default();
        let rest: String = cells.map(|cell| format!("<td>{cell}</td>")).collect();
        format!("<tr><th scope=\"row\">{name}</th>{rest}</tr>\n")
    };
    let rows: String = rows.iter().map(|cells| row(cells.as_ref())).collect();
    format!(
        r#"<div class="scroll" tabindex="0" role="group" aria-label="{caption}"><table><caption>{caption}</caption>
<thead><tr>{head}</tr></thead><tbody>
{rows}</tbody></table></div>"#
    )
}
