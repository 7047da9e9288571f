//! Reading XML, and HTML that is written as XML.

/// Entities that text is escaped with.
const ENTITIES: [&str; 4] = ["amp;", "lt;", "gt;", "quot;"];

/// An element: its name, and its attributes as they are written.
pub struct Element {
    pub name: String,
    pub attributes: String,
}

/// The elements of a document. Panics unless every tag is closed in order, attributes are quoted
/// and text is escaped. Text before the first element is left out, as are comments and
/// declarations.
pub fn elements(document: &str) -> Vec<Element> {
    let mut open: Vec<String> = Vec::new();
    let mut found = Vec::new();
    for piece in document.split('<').skip(1) {
        let (tag, text) = piece.split_once('>').expect("a tag ends");
        assert!(!text.contains('>'), "{piece}");
        for entity in piece.split('&').skip(1) {
            assert!(ENTITIES.iter().any(|name| entity.starts_with(name)), "{piece}");
        }
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop().as_deref(), Some(name), "{piece}");
            continue;
        }
        if tag.starts_with('!') {
            continue;
        }
        let (tag, closed) = tag.strip_suffix('/').map_or((tag, false), |tag| (tag, true));
        let (name, attributes) = tag.split_once(' ').unwrap_or((tag, ""));
        let quoted: Vec<&str> = attributes.split('"').collect();
        let named =
            quoted.iter().step_by(2).all(|name| name.trim().is_empty() || name.ends_with('='));
        assert!(quoted.len() % 2 == 1 && named, "{piece}");
        found.push(Element { name: name.into(), attributes: attributes.into() });
        if !closed {
            open.push(name.to_string());
        }
    }
    assert!(open.is_empty(), "{open:?}");
    found
}
