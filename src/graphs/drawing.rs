//! Draws a graph as SVG, for the page that documents its model.
//!
//! The steps are in layers from left to right, each to the right of those that it depends on. A dependency that skips layers has a slot
//! in each of them, so that its line passes between the steps. Colors are in the style sheet of the page, by class.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::graph::{Edge, Endpoint, Graph};
use crate::types::html::escape;

/// The largest graph that is drawn: steps; and steps, lines and layers that lines pass. A larger one would be unreadable.
const MAX_STEPS: usize = 100;
const MAX_SLOTS: usize = 1_000;

/// The most characters of a name and of a label that are drawn. The others are in the tooltip.
const MAX_NAME: usize = 28;
const MAX_LABEL: usize = 24;
const MAX_TOOLTIP: usize = 300;

/// Sizes in pixels. Characters are estimated generously, because the font is that of the reader.
const CHARACTER: usize = 8;
const BOX_HEIGHT: usize = 44;
const LINE_HEIGHT: usize = 16;
const ROW_GAP: usize = 22;
const COLUMN_GAP: usize = 56;
const MARGIN: usize = 12;

/// A place in a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Slot {
    Node(Endpoint),
    /// A line between other layers passes through.
    Passing {
        line: usize,
    },
}

/// All dependencies between two ends.
#[derive(Debug)]
struct Line {
    from: Endpoint,
    to: Endpoint,
    label: String,
}

/// The slots of each layer, from top to bottom.
type Layers = Vec<Vec<Slot>>;

/// A rectangle.
#[derive(Debug, Clone, Copy)]
struct Area {
    x: usize,
    y: usize,
    width: usize,
    height: usize,
}

impl Area {
    const fn middle(self) -> usize {
        self.y + self.height / 2
    }
}

/// Returns the graph as an SVG element, or a paragraph if it is too large.
pub fn draw(graph: &Graph) -> String {
    let steps = graph.steps().len();
    let lines = if steps > MAX_STEPS { Vec::new() } else { lines(graph.edges()) };
    let layers = if steps > MAX_STEPS { None } else { layers(steps, &lines) };
    match layers {
        Some(layers) => svg(graph, &lines, &layers),
        None => {
            format!("<p>The graph has {steps} steps, too many for a drawing. The metadata of the model lists them.</p>")
        }
    }
}

/// Joins the edges that have the same ends.
fn lines(edges: Vec<Edge>) -> Vec<Line> {
    let mut joined: BTreeMap<(Endpoint, Endpoint), Vec<String>> = BTreeMap::new();
    for Edge { from, to, label } in edges {
        let labels = joined.entry((from, to)).or_default();
        if !label.is_empty() {
            labels.push(label);
        }
    }
    joined.into_iter().map(|((from, to), labels)| Line { from, to, label: labels.join(", ") }).collect()
}

/// Puts every step into a layer. `None` if there are too many slots.
fn layers(steps: usize, lines: &[Line]) -> Option<Layers> {
    let mut layer_of = vec![1; steps];
    let mut incoming = vec![Vec::new(); steps];
    for line in lines {
        if let (Endpoint::Step(from), Endpoint::Step(to)) = (line.from, line.to)
            && let Some(incoming) = incoming.get_mut(to)
        {
            incoming.push(from);
        }
    }
    // Steps depend only on steps before them.
    for (step, incoming) in incoming.iter().enumerate() {
        let before = incoming.iter().filter(|from| **from < step).map(|from| layer_of[*from]).max();
        layer_of[step] = before.map_or(1, |layer| layer + 1);
    }
    let last = layer_of.iter().max().map_or(1, |layer| layer + 1);
    let layer = |end: Endpoint| match end {
        Endpoint::Input => 0,
        Endpoint::Step(step) => layer_of.get(step).copied().unwrap_or(1),
        Endpoint::Output => last,
    };
    let mut layers: Layers = vec![Vec::new(); last + 1];
    let ends = (0..steps).map(Endpoint::Step).chain([Endpoint::Input, Endpoint::Output]);
    for end in ends {
        layers[layer(end)].push(Slot::Node(end));
    }
    let mut slots = steps + lines.len();
    for (index, line) in lines.iter().enumerate() {
        let passed = layer(line.from) + 1..layer(line.to);
        slots += passed.len();
        if slots > MAX_SLOTS {
            return None;
        }
        for layer in passed {
            layers[layer].push(Slot::Passing { line: index });
        }
    }
    sort_layers(&mut layers, lines);
    Some(layers)
}

/// Sorts each layer by the positions of the slots that it is connected with in the layer before, so that few lines cross.
fn sort_layers(layers: &mut Layers, lines: &[Line]) {
    for right in 1..layers.len() {
        let position = |slot: Slot| layers[right - 1].iter().position(|found| *found == slot);
        let before = |index: usize, line: &Line| {
            position(Slot::Passing { line: index }).or_else(|| position(Slot::Node(line.from)))
        };
        let center = |slot: Slot| -> usize {
            let connected = lines.iter().enumerate().filter(|(index, line)| match slot {
                Slot::Node(end) => line.to == end,
                Slot::Passing { line } => line == *index,
            });
            let positions: Vec<usize> = connected.filter_map(|(index, line)| before(index, line)).collect();
            let sum: usize = positions.iter().sum();
            // In hundredths of a position.
            (sum * 100).checked_div(positions.len()).unwrap_or_default()
        };
        let mut keyed: Vec<(usize, Slot)> = layers[right].iter().map(|slot| (center(*slot), *slot)).collect();
        keyed.sort_by_key(|(center, _)| *center);
        layers[right] = keyed.into_iter().map(|(_, slot)| slot).collect();
    }
}

/// Returns the text of a node: the name of the step and, if it is another one, that of its model.
fn texts(graph: &Graph, end: Endpoint) -> (String, Option<String>) {
    match end {
        Endpoint::Input => ("request".to_owned(), None),
        Endpoint::Output => ("response".to_owned(), None),
        Endpoint::Step(index) => graph.steps().get(index).map_or_else(Default::default, |step| {
            let model = match &step.model.version {
                Some(version) => format!("{}@{version}", step.model.name),
                None => step.model.name.clone(),
            };
            let other = (model != step.name).then_some(model);
            (step.name.clone(), other)
        }),
    }
}

/// Returns the start of a text, without characters that a document must not have.
fn shortened(text: &str, limit: usize) -> String {
    let mut characters = text.chars().map(|character| if character.is_control() { '\u{fffd}' } else { character });
    let mut start: String = characters.by_ref().take(limit).collect();
    if characters.next().is_some() {
        start.pop();
        start.push('…');
    }
    start
}

fn width(text: &str, limit: usize) -> usize {
    text.chars().count().min(limit) * CHARACTER
}

/// Places the slots: columns beside each other, each centered vertically.
fn place(graph: &Graph, lines: &[Line], layers: &Layers) -> (Vec<Vec<Area>>, usize, usize) {
    let slot_height = |slot: &Slot| if let Slot::Node(_) = slot { BOX_HEIGHT } else { LINE_HEIGHT };
    let slot_width = |slot: &Slot| match slot {
        Slot::Node(end) => {
            let (name, model) = texts(graph, *end);
            let texts = [Some(name), model];
            texts.iter().flatten().map(|text| width(text, MAX_NAME)).max().unwrap_or_default() + 2 * MARGIN
        }
        Slot::Passing { .. } => 0,
    };
    let column_height =
        |layer: &Vec<Slot>| layer.iter().map(|slot| slot_height(slot) + ROW_GAP).sum::<usize>().saturating_sub(ROW_GAP);
    let height = layers.iter().map(column_height).max().unwrap_or_default() + 2 * MARGIN;
    let mut x = MARGIN;
    let mut areas = Vec::new();
    for layer in layers {
        let width = layer.iter().map(slot_width).max().unwrap_or_default();
        let mut y = (height - column_height(layer)) / 2;
        let mut column = Vec::new();
        for slot in layer {
            column.push(Area { x, y, width, height: slot_height(slot) });
            y += slot_height(slot) + ROW_GAP;
        }
        areas.push(column);
        // The labels are at the beginning of the lines.
        let starts = lines.iter().filter(|line| layer.contains(&Slot::Node(line.from)));
        let label = starts.map(|line| self::width(&line.label, MAX_LABEL)).max().unwrap_or_default();
        x += width + COLUMN_GAP + label;
    }
    let right = areas.last().and_then(|column| column.first()).map_or(x, |area| area.x + area.width);
    (areas, right + MARGIN, height)
}

fn svg(graph: &Graph, lines: &[Line], layers: &Layers) -> String {
    let (areas, width, height) = place(graph, lines, layers);
    let name = escape(&shortened(graph.name(), MAX_TOOLTIP));
    let mut svg = format!(
        "<svg class=\"graph\" role=\"img\" aria-label=\"The steps of the graph {name}\" viewBox=\"0 0 {width} {height}\" \
         width=\"{width}\" height=\"{height}\"><defs><marker id=\"graph-arrow\" class=\"graph-arrow\" viewBox=\"0 0 8 8\" \
         refX=\"8\" refY=\"4\" markerWidth=\"8\" markerHeight=\"8\" orient=\"auto\"><path d=\"M0 0L8 4L0 8z\"/></marker></defs>"
    );
    for (index, line) in lines.iter().enumerate() {
        // The areas that the line touches, from its start to its end.
        let touched = layers.iter().zip(&areas).flat_map(|(layer, areas)| layer.iter().zip(areas));
        let touched: Vec<Area> = touched
            .filter(|(slot, _)| match slot {
                Slot::Node(end) => *end == line.from || *end == line.to,
                Slot::Passing { line } => *line == index,
            })
            .map(|(_, area)| *area)
            .collect();
        draw_line(&mut svg, line, &touched);
    }
    for (slot, area) in layers.iter().zip(&areas).flat_map(|(layer, areas)| layer.iter().zip(areas)) {
        if let Slot::Node(end) = slot {
            draw_node(&mut svg, *end, texts(graph, *end), *area);
        }
    }
    svg.push_str("</svg>");
    svg
}

// Writing to a text does not fail.
fn draw_line(svg: &mut String, line: &Line, touched: &[Area]) {
    let [first, rest @ ..] = touched else { return };
    let (mut x, mut y) = (first.x + first.width, first.middle());
    let _ = write!(svg, "<path class=\"graph-line\" marker-end=\"url(#graph-arrow)\" d=\"M{x} {y}");
    let label_at = rest.first().map(|next| (usize::midpoint(x, next.x), usize::midpoint(y, next.middle())));
    for area in rest {
        let (to, middle) = (area.x, area.middle());
        let bend = usize::midpoint(x, to);
        let _ = write!(svg, "C{bend} {y} {bend} {middle} {to} {middle}");
        // A line that passes through a layer is straight there.
        if area.height == LINE_HEIGHT {
            let _ = write!(svg, "H{}", area.x + area.width);
        }
        (x, y) = (area.x + area.width, middle);
    }
    svg.push_str("\"/>");
    if let Some((x, y)) = label_at.filter(|_| !line.label.is_empty()) {
        let label = escape(&shortened(&line.label, MAX_LABEL));
        let tooltip = escape(&shortened(&line.label, MAX_TOOLTIP));
        let y = y.saturating_sub(4);
        let _ = write!(svg, "<text class=\"graph-label\" x=\"{x}\" y=\"{y}\">{label}<title>{tooltip}</title></text>");
    }
}

fn draw_node(svg: &mut String, end: Endpoint, (name, model): (String, Option<String>), area: Area) {
    let Area { x, y, width, height } = area;
    let class = if let Endpoint::Step(_) = end { "graph-step" } else { "graph-end" };
    let center = x + width / 2;
    let tooltip = model.iter().fold(name.clone(), |text, model| format!("{text}, model {model}"));
    let tooltip = escape(&shortened(&tooltip, MAX_TOOLTIP));
    let name_y = if model.is_some() { area.middle() - 3 } else { area.middle() + 5 };
    let name = escape(&shortened(&name, MAX_NAME));
    let _ = write!(
        svg,
        "<g class=\"{class}\"><title>{tooltip}</title><rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" \
         rx=\"6\"/><text x=\"{center}\" y=\"{name_y}\">{name}</text>"
    );
    if let Some(model) = model {
        let (model, y) = (escape(&shortened(&model, MAX_NAME)), area.middle() + 14);
        let _ = write!(svg, "<text class=\"graph-model\" x=\"{center}\" y=\"{y}\">{model}</text>");
    }
    svg.push_str("</g>");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graphs::{GraphManifest, GraphOptions};

    fn graph(manifest: &str) -> Graph {
        GraphManifest::parse(manifest.as_bytes(), "graph.yaml", &GraphOptions::default()).unwrap().graph
    }

    fn pipeline(steps: &str, output: &str) -> Graph {
        graph(&format!(
            "apiVersion: mlops.seldon.io/v1alpha1\nkind: Pipeline\nmetadata: {{name: p}}\n\
             spec: {{steps: [{steps}], output: {{steps: [{output}]}}}}"
        ))
    }

    #[test]
    fn drawing_has_steps_to_the_right_of_their_inputs() {
        let graph = pipeline("{name: a}, {name: b, inputs: [a]}, {name: c, inputs: [a, b]}", "c");
        let lines = lines(graph.edges());
        let layers = layers(3, &lines).unwrap();
        let nodes: Vec<Vec<Endpoint>> = layers
            .iter()
            .map(|layer| {
                let nodes = layer.iter().filter_map(|slot| if let Slot::Node(end) = slot { Some(*end) } else { None });
                nodes.collect()
            })
            .collect();
        let steps = [0, 1, 2].map(|step| vec![Endpoint::Step(step)]);
        assert_eq!(nodes, [&[vec![Endpoint::Input]], steps.as_slice(), &[vec![Endpoint::Output]]].concat());
        assert_eq!(layers[2].len(), 2, "the line from `a` to `c` passes `b`");
        let svg = draw(&graph);
        assert_eq!((svg.matches("<rect").count(), svg.matches("class=\"graph-line\"").count()), (5, 5), "{svg}");
    }

    #[test]
    fn drawing_escapes_names_and_labels() {
        let graph = pipeline(
            r#"{name: "<script>a & b</script>"}, {name: '"', inputs: ["<script>a & b</script>.outputs.<i>"]}"#,
            r#"'"'"#,
        );
        let svg = draw(&graph);
        assert!(!svg.contains("<script") && !svg.contains("<i>") && !svg.contains("& "), "{svg}");
        assert!(svg.contains("&lt;script&gt;a &amp; b&lt;/script&gt;") && svg.contains("&lt;i&gt;"), "{svg}");
        assert!(svg.contains(">&quot;</text>"), "{svg}");
    }

    #[test]
    fn drawing_shortens_long_names() {
        let name = "n".repeat(200);
        let svg = draw(&pipeline(&format!("{{name: {name}}}"), &name));
        let short = format!("{}…", "n".repeat(MAX_NAME - 1));
        assert!(svg.contains(&format!(">{short}</text>")) && svg.contains(&format!("<title>{name}</title>")), "{svg}");
        assert_eq!(shortened("a\u{0}b", 9), "a\u{fffd}b");
    }

    #[test]
    fn drawing_of_a_large_graph_is_a_sentence() {
        let steps = |count: usize| (0..count).map(|step| format!("{{name: s{step}}}")).collect::<Vec<_>>().join(", ");
        assert!(draw(&pipeline(&steps(MAX_STEPS), "s0")).starts_with("<svg"));
        let text = draw(&pipeline(&steps(MAX_STEPS + 1), "s0"));
        assert!(text.starts_with("<p>The graph has 101 steps, too many for a drawing."), "{text}");
        // Few steps, but a line from each one to all after it.
        let dense: Vec<String> = (0..60)
            .map(|step| {
                let inputs: Vec<String> = (0..step).map(|input| format!("s{input}")).collect();
                format!("{{name: s{step}, inputs: [{}]}}", inputs.join(", "))
            })
            .collect();
        assert!(draw(&pipeline(&dense.join(", "), "s59")).starts_with("<p>"));
    }
}
