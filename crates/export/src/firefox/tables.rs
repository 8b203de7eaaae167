//! The tables of a thread that are small: frames, functions, modules, texts. A frame is a function.

use std::{collections::HashMap, rc::Rc};

use ptrail_trace::{Function, FunctionId};

use crate::json::{put, put_text};

pub(super) const CATEGORIES: &str = r#"[{"name":"Call","color":"blue","subcategories":["Other"]}]"#;

/// What the profiler shows of each kind of marker.
pub(super) const MARKER_SCHEMA: &str = r#"[
{"name":"call","display":["marker-chart","marker-table"],"tooltipLabel":"{marker.name}","fields":[
 {"key":"instructions","label":"Instructions","format":"integer"},
 {"key":"self_instructions","label":"Own instructions","format":"integer"},
 {"key":"flags","label":"Flags","format":"string","searchable":true},
 {"key":"call_site","label":"Call site","format":"string"}]},
{"name":"point","display":["marker-chart","marker-table","timeline-overview"],"tableLabel":"{marker.data.text}","chartLabel":"{marker.data.text}","fields":[
 {"key":"kind","label":"Kind","format":"string"},
 {"key":"text","label":"What","format":"string","searchable":true}]},
{"name":"loss","display":["marker-chart","marker-table","timeline-overview"],"tableLabel":"{marker.data.reason}","fields":[
 {"key":"cause","label":"Cause","format":"string"},
 {"key":"bytes","label":"Trace lost","format":"bytes"},
 {"key":"reason","label":"Reason","format":"string","searchable":true}]}]"#;

/// What a thread refers to, in the order of first use.
#[derive(Default)]
pub(super) struct Local {
    frames: HashMap<FunctionId, u32>,
    functions: Vec<FunctionId>,
    strings: HashMap<String, u32>,
    texts: Vec<String>,
}

impl Local {
    /// The number of a function's frame.
    pub(super) fn frame(&mut self, function: FunctionId) -> u32 {
        let next = self.functions.len() as u32;
        let functions = &mut self.functions;
        *self.frames.entry(function).or_insert_with(|| {
            functions.push(function);
            next
        })
    }

    pub(super) fn string(&mut self, text: &str) -> u32 {
        if let Some(&number) = self.strings.get(text) {
            return number;
        }
        let number = self.texts.len() as u32;
        self.texts.push(text.to_owned());
        self.strings.insert(text.to_owned(), number);
        number
    }

    /// The tables as members of the thread.
    pub(super) fn put(
        &mut self,
        all: &[Option<Rc<Function>>],
        libraries: &[String],
        bytes: &mut Vec<u8>,
    ) {
        let functions: Vec<_> = self
            .functions
            .iter()
            .filter_map(|id| all.get(id.0 as usize)?.clone())
            .collect();
        let length = functions.len();
        let resources: Vec<_> = libraries.iter().map(|module| self.string(module)).collect();
        let resource = |function: &Function| match libraries.binary_search(&function.module) {
            Ok(index) => index.to_string(),
            Err(_) => "-1".to_owned(),
        };
        let line = |function: &Function| match &function.source {
            Some(source) => source.line.to_string(),
            None => "null".to_owned(),
        };
        put(bytes, format_args!("\"frameTable\":{{\"length\":{length}"));
        let every = |value: &str| vec![value.to_owned(); length];
        let column = |value: &dyn Fn(&Function) -> String| -> Vec<String> {
            functions.iter().map(|function| value(function)).collect()
        };
        let numbers: Vec<_> = (0..length).map(|number| number.to_string()).collect();
        put_column(bytes, "address", &every("-1"));
        put_column(bytes, "inlineDepth", &every("0"));
        put_column(bytes, "category", &every("0"));
        put_column(bytes, "subcategory", &every("0"));
        put_column(bytes, "func", &numbers);
        put_column(bytes, "nativeSymbol", &every("null"));
        put_column(bytes, "innerWindowID", &every("0"));
        put_column(bytes, "implementation", &every("null"));
        put_column(bytes, "line", &column(&line));
        put_column(bytes, "column", &every("null"));
        put(
            bytes,
            format_args!("}},\n\"funcTable\":{{\"length\":{length}"),
        );
        let names: Vec<_> = functions
            .iter()
            .map(|function| self.string(&function.name).to_string())
            .collect();
        let files: Vec<_> = functions
            .iter()
            .map(|function| match &function.source {
                Some(source) => self.string(&source.file).to_string(),
                None => "null".to_owned(),
            })
            .collect();
        put_column(bytes, "name", &names);
        put_column(bytes, "isJS", &every("false"));
        put_column(bytes, "relevantForJS", &every("false"));
        put_column(bytes, "resource", &column(&resource));
        put_column(bytes, "fileName", &files);
        put_column(bytes, "lineNumber", &column(&line));
        put_column(bytes, "columnNumber", &every("null"));
        let count = resources.len();
        put(
            bytes,
            format_args!("}},\n\"resourceTable\":{{\"length\":{count}"),
        );
        let indices: Vec<_> = (0..count).map(|index| index.to_string()).collect();
        let names: Vec<_> = resources.iter().map(u32::to_string).collect();
        put_column(bytes, "lib", &indices);
        put_column(bytes, "name", &names);
        put_column(bytes, "host", &vec!["null".to_owned(); count]);
        // A library.
        put_column(bytes, "type", &vec!["1".to_owned(); count]);
        put(
            bytes,
            format_args!(
                "}},\n\"nativeSymbols\":{{\"length\":0,\"address\":[],\"functionSize\":[],\"libIndex\":[],\"name\":[]}},\n\"stringArray\":["
            ),
        );
        for (index, text) in self.texts.iter().enumerate() {
            if index > 0 {
                bytes.extend_from_slice(b",\n");
            }
            put_text(bytes, text);
        }
        bytes.push(b']');
    }
}

fn put_column(bytes: &mut Vec<u8>, name: &str, values: &[String]) {
    put(bytes, format_args!(",\"{name}\":[{}]", values.join(",")));
}
