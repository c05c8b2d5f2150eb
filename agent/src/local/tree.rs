//! The owner's file as a tree, in which every node knows its line and column.
//!
//! One type for all of the file, and not a type of its own for each section read by serde: that is what keeps
//! the reading small. An alias stands for a copy of what it names.

use std::borrow::Cow;
use std::collections::BTreeMap;

use granit_parser::{Event, Parser, ScalarStyle, Span, StrInput, Tag};

use super::fault::{Fault, Place};

/// Deepest nesting that is read; what the file may say is four deep.
const DEPTH_MAX: usize = 16;

/// Most nodes, aliases counted for all they stand for: about one for each byte of the largest file.
const NODES_MAX: usize = 64 << 10;

/// Where YAML's own tags are.
const YAML: &str = "tag:yaml.org,2002:";

/// Something in the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Node<'t> {
    /// Where it begins.
    pub(super) at: Place,
    /// What it is.
    pub(super) value: Value<'t>,
}

/// What can stand in the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Value<'t> {
    /// `null`, `~` or no value at all.
    Nothing,
    /// A text, a number, a yes or no: what it means is known by who reads it.
    Text(Cow<'t, str>),
    /// A list.
    List(Vec<Node<'t>>),
    /// Keys and their values.
    Section(Vec<(Node<'t>, Node<'t>)>),
}

/// Reads the one document of a text. An empty text is an empty section.
pub(super) fn read(text: &str) -> Result<Node<'_>, Fault> {
    let mut options = granit_parser::Options::default();
    options.set_emit_comments(false);
    let parser = Parser::new_from_str_with_options(text, options);
    let mut builder = Builder { parser, end: Place { line: 1, column: 1 }, anchored: BTreeMap::new(), nodes: 0 };
    let mut root = None;
    while let Some((event, at)) = builder.next()? {
        match (&event, &root) {
            (Event::StreamStart | Event::StreamEnd | Event::DocumentStart(..) | Event::DocumentEnd, _) => {}
            (_, None) => root = Some(builder.node(event, at, 1)?),
            (_, Some(_)) => {
                return Err(Fault::new(at, "a second document begins here; leave one, without '---' between"));
            }
        }
    }
    Ok(root.unwrap_or(Node { at: builder.end, value: Value::Section(Vec::new()) }))
}

struct Builder<'t> {
    parser: Parser<'t, StrInput<'t>>,
    /// Where the last event was.
    end: Place,
    /// What an alias may stand for.
    anchored: BTreeMap<usize, Node<'t>>,
    /// So many nodes there are.
    nodes: usize,
}

impl<'t> Builder<'t> {
    /// The next event and where it is; nothing after the last.
    fn next(&mut self) -> Result<Option<(Event<'t>, Place)>, Fault> {
        match self.parser.next_event() {
            None => Ok(None),
            Some(Ok((event, span))) => {
                self.end = place(&span);
                Ok(Some((event, self.end)))
            }
            Some(Err(error)) => {
                let at = Place { line: error.marker().line(), column: error.marker().col() + 1 };
                let why = error.info();
                Err(Fault::new(at, format!("not YAML: {why}; look at quotes, brackets and indentation up to here")))
            }
        }
    }

    /// The next event inside a list or section, which the parser always ends.
    fn inner(&mut self) -> Result<(Event<'t>, Place), Fault> {
        self.next()?.ok_or_else(|| Fault::new(self.end, "the file ends inside a list or section"))
    }

    /// The node that begins with an event.
    fn node(&mut self, event: Event<'t>, at: Place, depth: usize) -> Result<Node<'t>, Fault> {
        self.count(1, depth, at)?;
        #[expect(clippy::wildcard_enum_match_arm, reason = "their enum: all other events begin no node")]
        let (value, anchor) = match event {
            Event::Scalar(text, style, anchor, tag) => (scalar(text, style, tag.as_deref(), at)?, anchor),
            Event::SequenceStart(_, anchor, _) => (Value::List(self.list(depth)?), anchor),
            Event::MappingStart(_, anchor, _) => (Value::Section(self.section(depth)?), anchor),
            Event::Alias(id) => return self.alias(id, at, depth),
            _ => return Err(Fault::new(at, "a key or a value should stand here")),
        };
        let node = Node { at, value };
        // 0 is no anchor.
        if anchor != 0 {
            self.anchored.insert(anchor, node.clone());
        }
        Ok(node)
    }

    fn list(&mut self, depth: usize) -> Result<Vec<Node<'t>>, Fault> {
        let mut list = Vec::new();
        loop {
            let (event, at) = self.inner()?;
            if matches!(event, Event::SequenceEnd) {
                return Ok(list);
            }
            list.push(self.node(event, at, depth + 1)?);
        }
    }

    fn section(&mut self, depth: usize) -> Result<Vec<(Node<'t>, Node<'t>)>, Fault> {
        let mut section = Vec::new();
        loop {
            let (event, at) = self.inner()?;
            if matches!(event, Event::MappingEnd) {
                return Ok(section);
            }
            let key = self.node(event, at, depth + 1)?;
            let (event, at) = self.inner()?;
            section.push((key, self.node(event, at, depth + 1)?));
        }
    }

    /// What an alias stands for; what is wrong with that is told where the alias is.
    fn alias(&mut self, id: usize, at: Place, depth: usize) -> Result<Node<'t>, Fault> {
        let Some(named) = self.anchored.get(&id) else {
            return Err(Fault::new(at, "this alias stands inside of what it names; write the value out"));
        };
        let node = Node { at, value: named.value.clone() };
        let (nodes, deep) = measure(&node);
        self.count(nodes, depth + deep, at)?;
        Ok(node)
    }

    /// Adds nodes, of which the deepest is so deep.
    fn count(&mut self, nodes: usize, depth: usize, at: Place) -> Result<(), Fault> {
        self.nodes += nodes;
        if depth > DEPTH_MAX {
            return Err(Fault::new(at, format!("nested deeper than {DEPTH_MAX}; nothing in this file is")));
        }
        match self.nodes > NODES_MAX {
            true => Err(Fault::new(at, format!("more than {NODES_MAX} values, those that aliases repeat included"))),
            false => Ok(()),
        }
    }
}

/// Where a span begins.
fn place(span: &Span) -> Place {
    Place { line: span.start.line(), column: span.start.col() + 1 }
}

/// What stands there unquoted may be nothing; a tag can say that it is, or that it is a text.
fn scalar<'t>(text: Cow<'t, str>, style: ScalarStyle, tag: Option<&Tag>, at: Place) -> Result<Value<'t>, Fault> {
    let plain = style == ScalarStyle::Plain && matches!(&*text, "" | "~" | "null" | "Null" | "NULL");
    let nothing = match tag.map(Tag::parts) {
        Some((YAML, "null")) => true,
        Some((YAML, "str") | ("", "!")) => false,
        Some((YAML, "bool" | "int" | "float")) | None => plain,
        Some((YAML, other)) => {
            return Err(Fault::new(at, format!("no value of this file is a !!{other}; leave that out")));
        }
        // Whose meaning is another program's.
        Some(_) => plain,
    };
    Ok(if nothing { Value::Nothing } else { Value::Text(text) })
}

/// So many nodes a node is, itself included, and so deep.
fn measure(node: &Node<'_>) -> (usize, usize) {
    let add = |(nodes, depth): (usize, usize), inner: &Node<'_>| {
        let (more, deep) = measure(inner);
        (nodes + more, depth.max(deep + 1))
    };
    match &node.value {
        Value::Nothing | Value::Text(_) => (1, 1),
        Value::List(list) => list.iter().fold((1, 1), add),
        Value::Section(section) => section.iter().flat_map(|(key, value)| [key, value]).fold((1, 1), add),
    }
}
