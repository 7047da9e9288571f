//! Chooses the two columns of a table that are the ends of an edge.
//!
//! The options decide. Otherwise names that belong together do: `source` and `target`,
//! `from_address` and `to_address`, `person1` and `person2`, `user_id` and `item_id`. Otherwise the
//! only two columns that can be ids. In all other cases the user is asked.

use super::choice::{Field, IdKind, names, plain};

/// Pairs of words for the two ends, in lower case. A pair of columns is named by two of them, or by
/// names that differ only in two of them: `node_a` and `node_b`.
const ENDS: &str = "src-dst source-target source-destination source-dest src-dest src-target src-tgt from-to \
    head-tail subject-object sender-receiver sender-recipient payer-payee buyer-seller \
    caller-callee \
    citing-cited follower-followee follower-followed parent-child origin-destination \
    origin-dest u-v i-j a-b 0-1 1-2 row-col left-right start-end";
/// Words that may follow a word for an end without a separator, as in `srcid`.
const GLUED: [&str; 5] = ["id", "node", "nodeid", "vertex", "idx"];
/// Words of columns that are not ends, although they may hold integers or strings.
const VALUES: &str = "weight weights w time timestamp timestamps ts date datetime day month year hour rating \
    ratings score scores count counts amount amounts value values price quantity distance type \
    kind label class category directed undirected duration frequency probability confidence \
    timeset";
/// Words of columns that number the edges themselves.
const NUMBERS: &str =
    "id edgeid eid rowid index idx no linkid relationid transactionid eventid recordid number";

/// Whether `word` is one of `words`, with blanks between them.
pub fn has(words: &str, word: &str) -> bool {
    words.split(' ').any(|other| other == word)
}

/// Words of a name, in lower case: cut at punctuation, before capitals, and between letters and
/// digits.
pub fn words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut before = ' ';
    for c in name.chars() {
        let turns = (before.is_lowercase() && c.is_uppercase())
            || (before.is_alphabetic() != c.is_alphabetic());
        if (turns || !c.is_alphanumeric()) && words.last().is_some_and(|word| !word.is_empty()) {
            words.push(String::new());
        }
        if let (true, Some(word)) = (c.is_alphanumeric(), words.last_mut()) {
            word.extend(c.to_lowercase());
        }
        before = c;
    }
    words.retain(|word| !word.is_empty());
    words
}

/// The common rest of two names that differ only in a pair of words for the ends. The first name is
/// the source's.
fn rest_of_pair(source: &[String], target: &[String]) -> Option<String> {
    if source.len() != target.len() {
        return None;
    }
    let mut differing = (0..source.len()).filter(|&at| source[at] != target[at]);
    let (at, None) = (differing.next()?, differing.next()) else { return None };
    let (from, to) = (source[at].as_str(), target[at].as_str());
    let is_pair = |suffix: &str| {
        let of = |word: &'_ str| word.strip_suffix(suffix).map(str::to_string);
        of(from).zip(of(to)).is_some_and(|(from, to)| has(ENDS, &format!("{from}-{to}")))
    };
    let glued = GLUED.iter().find(|suffix| is_pair(suffix));
    let rest = [&source[..at], &source[at + 1..]].concat().join(" ");
    match glued {
        Some(glued) => Some(format!("{rest}{glued}")),
        None => is_pair("").then_some(rest),
    }
}

/// Whether a column of this name is known not to be an end.
fn is_value(name: &str) -> bool {
    words(name).iter().any(|word| has(VALUES, word))
}

fn is_number_of_edge(name: &str) -> bool {
    has(NUMBERS, &plain(name))
}

/// Two columns named like ends, and the words that the names share.
struct EndPair {
    ends: [usize; 2],
    rest: String,
}

/// Pairs of the columns at `places` whose names make them the ends of an edge. If one pair is
/// likeliest, only that one.
fn pairs_by_name(names: &[&str], places: &[usize]) -> Vec<[usize; 2]> {
    let words: Vec<Vec<String>> = names.iter().map(|name| words(name)).collect();
    let mut found = Vec::new();
    for &source in places {
        for &target in places.iter().filter(|&&target| target != source) {
            let rest = rest_of_pair(&words[source], &words[target]);
            found.extend(rest.map(|rest| EndPair { ends: [source, target], rest }));
        }
    }
    found.retain(|pair| !pair.rest.split(' ').any(|word| has(VALUES, word)));
    // Of `a1`, `b1` and `c1` no two are the ends.
    let goes_on = |pair: &EndPair| {
        let [source, target] = pair.ends.map(|at| &words[at]);
        let next = |(one, other): (&String, &String)| {
            Some(other)
                .filter(|_| one != other && other.len() == 1)
                .and_then(|word| successor(word))
        };
        let next: Vec<String> =
            source.iter().zip(target).map(|pair| next(pair).unwrap_or(pair.1.clone())).collect();
        next != *target && words.contains(&next)
    };
    found.retain(|pair| !goes_on(pair));
    // `start` and `end` may be the ends of an interval: every other pair is preferred.
    let is_weak = |pair: &EndPair| words[pair.ends[0]].iter().any(|word| word == "start");
    if !found.iter().all(is_weak) {
        found.retain(|pair| !is_weak(pair));
    }
    let is_plain = |pair: &&EndPair| {
        let rest = pair.rest.as_str();
        rest.is_empty() || GLUED.contains(&rest) || rest == "node id" || rest == "vertex id"
    };
    let plain: Vec<[usize; 2]> = found.iter().filter(is_plain).map(|pair| pair.ends).collect();
    if plain.len() == 1 {
        return plain;
    }
    if found.is_empty() {
        // `user_id` and `item_id`.
        let is_id = |&&at: &&usize| {
            words[at].len() > 1 && words[at].last().is_some_and(|word| word == "id")
        };
        let ids: Vec<usize> = places
            .iter()
            .filter(is_id)
            .filter(|&&at| !is_number_of_edge(names[at]))
            .copied()
            .collect();
        return if let [source, target] = ids[..] { vec![[source, target]] } else { Vec::new() };
    }
    found.into_iter().map(|pair| pair.ends).collect()
}

/// The letter or digit that follows `word`.
fn successor(word: &str) -> Option<String> {
    let next = word.bytes().next().filter(|byte| !matches!(byte, b'9' | b'z'))?.checked_add(1)?;
    next.is_ascii_alphanumeric().then(|| char::from(next).to_string())
}

/// Whether the words of a first line name the ends of an edge beyond doubt: not `a` and `b`, nor
/// `n1` and `n2`, which name vertices as often.
pub fn are_known(names: &[&str]) -> bool {
    let all: Vec<usize> = (0..names.len()).collect();
    let differ_by_words = |[source, target]: &[usize; 2]| {
        let [source, target] = [source, target].map(|&at| words(names[at]));
        source.iter().zip(&target).any(|(source, target)| source != target && source.len() > 1)
    };
    pairs_by_name(names, &all).iter().any(differ_by_words)
}

/// The first two columns of a list without a header, as in edge lists, if no later column is text,
/// which could be an end.
pub fn first_two(fields: &[Field]) -> Option<[usize; 2]> {
    let [first, second, rest @ ..] = fields else { return None };
    let alike = first.id.is_some() && first.id == second.id;
    (alike && rest.iter().all(|field| field.id != Some(IdKind::Text))).then_some([0, 1])
}

/// The ends of an edge among `fields`, where options may name `source` and `target`. The error is
/// the question to ask.
pub fn choose(
    fields: &[Field],
    source: Option<usize>,
    target: Option<usize>,
) -> Result<[usize; 2], String> {
    if let (Some(source), Some(target)) = (source, target) {
        return Ok([source, target]);
    }
    let column_names: Vec<&str> = fields.iter().map(|field| field.name.as_str()).collect();
    let given = |at: usize| Some(at) == source || Some(at) == target;
    let able: Vec<usize> =
        (0..fields.len()).filter(|&at| fields[at].id.is_some() || given(at)).collect();
    // An option that names one column of a pair may reverse it.
    let turned = |[one, other]: [usize; 2]| match (source, target) {
        (None, None) => Some([one, other]),
        (Some(given), _) if given == one || given == other => Some([given, one + other - given]),
        (_, Some(given)) if given == one || given == other => Some([one + other - given, given]),
        _ => None,
    };
    let named: Vec<[usize; 2]> =
        pairs_by_name(&column_names, &able).into_iter().filter_map(turned).collect();
    let shown = |at: usize| format!("`{}`", fields[at].name);
    match named[..] {
        [pair] => return Ok(pair),
        [] => {}
        _ => {
            let pairs: Vec<String> =
                named.iter().map(|&[u, v]| format!("{} to {}", shown(u), shown(v))).collect();
            return Err(format!("edges may go from {}", pairs.join(", or from ")));
        }
    }
    let exact: Vec<usize> =
        able.iter().copied().filter(|&at| given(at) || !fields[at].is_fractional).collect();
    let able = if exact.len() < 2 { able } else { exact };
    let without_values: Vec<usize> =
        able.iter().copied().filter(|&at| given(at) || !is_value(&fields[at].name)).collect();
    let without_numbers: Vec<usize> = without_values
        .iter()
        .copied()
        .filter(|&at| given(at) || !is_number_of_edge(&fields[at].name))
        .collect();
    for candidates in [&able, &without_values, &without_numbers] {
        if let [one, other] = candidates[..] {
            return Ok(if source == Some(other) || target == Some(one) {
                [other, one]
            } else {
                [one, other]
            });
        }
    }
    if able.len() < 2 {
        return Err(format!(
            "expected two columns of integers or strings, the ends of an edge. There are {}",
            names(fields)
        ));
    }
    let able: Vec<Field> = able.iter().map(|&at| fields[at].clone()).collect();
    Err(format!("which columns are the ends of an edge? {} can be", names(&able)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(header: &str) -> Result<String, String> {
        let name = |name: &str| {
            let (name, id) = match name.strip_suffix(":f") {
                Some(name) => (name, None),
                None => (name, Some(IdKind::Text)),
            };
            Field {
                name: name.into(),
                id,
                value: None,
                list: false,
                is_fractional: name.starts_with("whole"),
                is_empty: false,
            }
        };
        let fields: Vec<Field> = header.split(',').map(name).collect();
        choose(&fields, None, None)
            .map(|[source, target]| format!("{} {}", fields[source].name, fields[target].name))
    }

    #[test]
    fn ends_are_told_by_their_names() {
        for (header, expected) in [
            ("id,user_a,user_b", "user_a user_b"),
            ("subject,predicate,object", "subject object"),
            (
                "block_timestamp,transaction_hash,from_address,to_address,value",
                "from_address to_address",
            ),
            ("ts,caller,callee", "caller callee"),
            ("edge_id,person1,person2", "person1 person2"),
            ("type,node_a,node_b", "node_a node_b"),
            ("protein1,protein2,combined_score", "protein1 protein2"),
            ("Source,Target,Type,Id,Label,timeset,Weight", "Source Target"),
            ("FromNodeId,ToNodeId", "FromNodeId ToNodeId"),
            ("userId,movieId,rating:f,timestamp", "userId movieId"),
            ("edge_id,user_id,item_id", "user_id item_id"),
            ("dstid,srcid", "srcid dstid"),
            (":START_ID,:END_ID,:TYPE", ":START_ID :END_ID"),
            ("u,v,start,end", "u v"),
            ("start,end", "start end"),
            ("source_id,target_id,source_name,target_name", "source_id target_id"),
            ("author,paper", "author paper"),
            ("a,b,weight", "a b"),
            ("x,y,whole", "x y"),
            ("x,whole", "x whole"),
            ("whole_to,whole_from,x", "whole_from whole_to"),
            ("author,paper,year", "author paper"),
            ("id,parent", "id parent"),
            ("id,author,paper", "author paper"),
            ("src:f,dst,u,v", "u v"),
            ("address_to,address_from", "address_from address_to"),
            ("Sender,Receiver,Amount", "Sender Receiver"),
            ("srcIp,dstIp,bytes:f", "srcIp dstIp"),
        ] {
            assert_eq!(chosen(header).as_deref(), Ok(expected), "{header}");
        }
    }

    #[test]
    fn a_doubt_is_a_question() {
        for (header, expected) in [
            ("a1,b1,c1", "which columns are the ends of an edge? `a1`, `b1`, `c1` can be"),
            (
                "src_ip,dst_ip,src_port,dst_port",
                "from `src_ip` to `dst_ip`, or from `src_port` to `dst_port`",
            ),
            ("user_id,item_id,shop_id", "which columns"),
            ("start_time,end_time,x", "which columns"),
            ("from:f,to", "expected two columns"),
            ("1,2,3", "which columns"),
        ] {
            assert!(
                chosen(header).unwrap_err().contains(expected),
                "{header}: {:?}",
                chosen(header)
            );
        }
    }

    #[test]
    fn headers_are_known_by_their_words() {
        for header in [
            "src,dst",
            "from_user,to_user,w",
            "user_id,item_id",
            "FromNodeId,ToNodeId",
            "x,caller,callee",
        ] {
            assert!(are_known(&header.split(',').collect::<Vec<_>>()), "{header}");
        }
        for line in ["alice,bob", "TP53,MDM2", "1,2", "n1,n2", "a,b", "time,money", "user_a,user_b"]
        {
            assert!(!are_known(&line.split(',').collect::<Vec<_>>()), "{line}");
        }
    }
}
