//! An HTML page in one file, without scripts or anything to fetch. It is well-formed XML with all
//! text escaped.

/// The first line of every page contains it.
pub const MAKER: &str = "<!--gsplit report-->";

/// A page under construction.
#[derive(Default)]
pub struct Page {
    body: String,
    /// Titles of the sections.
    pub sections: Vec<String>,
    /// Titles of the sections without data, each with the reason: usually the command that makes
    /// the data.
    pub left_out: Vec<[String; 2]>,
}

impl Page {
    /// Adds a section that `fill` writes.
    pub fn section(&mut self, title: &str, fill: impl FnOnce(&mut Self)) {
        self.sections.push(title.into());
        let (id, title) = (id(title), escape(title));
        self.add(&format!(r#"<section aria-labelledby="{id}"><h2 id="{id}">{title}</h2>"#));
        fill(self);
        self.add("</section>");
    }

    /// Records that a section is left out, and why.
    pub fn leave_out(&mut self, title: &str, why: impl Into<String>) {
        self.left_out.push([title.into(), why.into()]);
    }

    /// Adds a paragraph.
    pub fn text(&mut self, text: &str) {
        self.add(&format!("<p>{}</p>", escape(text)));
    }

    /// Adds a table whose first column names the rows.
    pub fn table(
        &mut self,
        caption: &str,
        head: &[impl AsRef<str>],
        rows: &[impl AsRef<[String]>],
    ) {
        let caption = escape(caption);
        let head: String = head
            .iter()
            .map(|name| format!(r#"<th scope="col">{}</th>"#, escape(name.as_ref())))
            .collect();
        let row = |row: &[String]| {
            let mut cells = row.iter().map(|cell| escape(cell));
            let name = cells.next().unwrap_or_default();
            let rest: String = cells.map(|cell| format!("<td>{cell}</td>")).collect();
            format!("<tr><th scope=\"row\">{name}</th>{rest}</tr>\n")
        };
        let rows: String = rows.iter().map(|cells| row(cells.as_ref())).collect();
        self.add(&format!(
            r#"<div class="scroll" tabindex="0" role="group" aria-label="{caption}"><table><caption>{caption}</caption>
<thead><tr>{head}</tr></thead><tbody>
{rows}</tbody></table></div>"#
        ));
    }

    /// Adds details, which `fill` writes, folded under `summary`.
    pub fn fold(&mut self, summary: &str, fill: impl FnOnce(&mut Self)) {
        self.add(&format!("<details><summary>{}</summary>", escape(summary)));
        fill(self);
        self.add("</details>");
    }

    /// Adds `html`, which is well-formed and escaped.
    pub fn add(&mut self, html: &str) {
        self.body += html;
        self.body.push('\n');
    }

    /// Returns the text of the file: the template around the sections, and a list of those that are
    /// left out.
    pub fn finish(&mut self, title: &str, subtitle: &str) -> String {
        let entry = |section: &String| {
            format!(r##"<li><a href="#{}">{}</a></li>"##, id(section), escape(section))
        };
        let contents: String = self.sections.iter().map(entry).collect();
        if !self.left_out.is_empty() {
            let rows = self.left_out.clone();
            self.add("<section aria-labelledby=\"left-out\"><h2 id=\"left-out\">Left out</h2>");
            self.table("Sections without data", &["section", "why"], &rows);
            self.add("</section>");
        }
        format!(
            include_str!("page.html"),
            maker = MAKER,
            style = include_str!("style.css"),
            title = escape(title),
            subtitle = escape(subtitle),
            contents = contents,
            body = self.body,
            version = env!("CARGO_PKG_VERSION"),
        )
    }
}

/// Returns the title of a section as an identifier.
fn id(title: &str) -> String {
    title
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' })
        .collect()
}

/// Returns `text` for use between tags or quotes. U+FFFD replaces characters that XML 1.0 cannot
/// hold, and those that change the direction of the text around them.
pub fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => escaped.push('\u{fffd}'),
            '\u{200e}' | '\u{200f}' | '\u{61c}' => escaped.push('\u{fffd}'),
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => {
                escaped.push('\u{fffd}');
            }
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_break_the_document() {
        assert_eq!(escape("a\u{202e}cod\u{2067}.exe"), "a\u{fffd}cod\u{fffd}.exe");
        assert_eq!(
            escape("a<b>&\"c\u{1}\n\u{ffff}é"),
            "a&lt;b&gt;&amp;&quot;c\u{fffd}\u{fffd}\u{fffd}é"
        );
    }
}
