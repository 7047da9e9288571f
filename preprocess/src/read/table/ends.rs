//! Chooses the two columns of a table that are the ends of an edge.
//!
//! The options decide. Otherwise names that belong together do: `source` and `target`,
//! `from_address` and `to_address`, `person1` and `person2`, or the only two names that end in
//! `id`. Otherwise the only two columns that can be ids. In all other cases the user is asked: no
//! column that can be an end is dropped because of its name.

use super::choice::{Field, IdKind, names};
use super::left_out::TIMES;

/// Pairs of words for the two ends, in lower case. A pair of columns is named by two of them, or by
/// names that differ only in two of them: `node_a` and `node_b`.
const ENDS: &str = "src-dst source-target source-destination source-dest src-dest src-target src-tgt from-to \
    head-tail subject-object sender-receiver sender-recipient payer-payee \
    caller-callee \
    citing-cited follower-followee follower-followed parent-child origin-destination \
    origin-dest u-v i-j a-b 0-1 1-2 row-col left-right start-end";
/// Words that may follow a word for an end without a separator, as in `srcid`.
const GLUED: [&str; 5] = ["id", "node", "nodeid", "vertex", "idx"];
/// Names of vertices of any kind.
const ANY_KIND: [&str; 4] = ["node", "vertex", "entity", "name"];

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

/// The common rest of two names that differ only in a pair of words for the ends, or in a number
/// that the second has: `Account` and `Account.1`. The first name is the source's.
fn rest_of_pair(source: &[String], target: &[String]) -> Option<String> {
    if source.len() != target.len() {
        let (number, start) = target.split_last()?;
        return (start == source && (number == "1" || number == "2")).then(|| source.join(" "));
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

/// Pairs of the columns at `places` whose names make them the ends of an edge. If one pair is
/// likeliest, only that one.
fn pairs_by_name(names: &[&str], places: &[usize]) -> Vec<[usize; 2]> {
    let words: Vec<Vec<String>> = names.iter().map(|name| words(name)).collect();
    // Two columns named like ends, and the words that the names share.
    let mut found: Vec<([usize; 2], String)> = Vec::new();
    for &source in places {
        for &target in places.iter().filter(|&&target| target != source) {
            let rest = rest_of_pair(&words[source], &words[target]);
            found.extend(rest.map(|rest| ([source, target], rest)));
        }
    }
    // Of `a1`, `b1` and `c1` no two are the ends.
    let goes_on = |ends: [usize; 2]| {
        let [source, target] = ends.map(|at| &words[at]);
        if source.len() != target.len() {
            return false;
        }
        let next = |(one, other): (&String, &String)| {
            let next = if one != other && other.len() == 1 { successor(other) } else { None };
            next.unwrap_or(other.clone())
        };
        let next: Vec<String> = source.iter().zip(target).map(next).collect();
        next != *target && words.contains(&next)
    };
    // Two times are an interval, and so are `start` and `end`, unless they are of vertices.
    let is_interval = |ends: [usize; 2], rest: &str| {
        rest.split(' ').any(|word| has(TIMES, word)) || words[ends[0]] == ["start"]
    };
    found.retain(|(ends, rest)| !goes_on(*ends) && !is_interval(*ends, rest));
    let is_plain = |(_, rest): &&([usize; 2], String)| {
        rest.is_empty() || GLUED.contains(&&**rest) || rest == "node id" || rest == "vertex id"
    };
    let plain: Vec<[usize; 2]> = found.iter().filter(is_plain).map(|(ends, _)| *ends).collect();
    if plain.len() == 1 {
        return plain;
    }
    if found.is_empty() {
        // `user_id` and `item_id`.
        let is_id = |&&at: &&usize| words[at].last().is_some_and(|word| word == "id");
        let ids: Vec<usize> = places.iter().filter(is_id).copied().collect();
        let are_all_named = ids.iter().all(|&at| words[at].len() > 1);
        return match ids[..] {
            [source, target] if are_all_named => vec![[source, target]],
            _ => Vec::new(),
        };
    }
    found.into_iter().map(|(ends, _)| ends).collect()
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

/// The noun of a column's name, for the kind of its vertices: `user` of `user_id` and of `Users`.
/// Empty if the name has none.
fn noun(name: &str) -> String {
    let mut words = words(name);
    let is_number = |word: &str| word.chars().all(char::is_numeric);
    words.retain(|word| !["id", "ids", "idx", "no", "key"].contains(&word.as_str()));
    words.retain(|word| !is_number(word));
    let noun = words.join(" ");
    let noun = noun.strip_suffix('s').filter(|noun| noun.len() > 2).unwrap_or(&noun);
    if ANY_KIND.contains(&noun) { String::new() } else { noun.into() }
}

/// Whether columns of these names hold ids of two kinds: they have different nouns, and are not a
/// pair of ends.
pub fn are_two_kinds(source: &str, target: &str) -> bool {
    let [one, other] = [noun(source), noun(target)];
    let words = [words(source), words(target)];
    let is_pair = |[one, other]: [usize; 2]| rest_of_pair(&words[one], &words[other]).is_some();
    one != other && one.len() > 1 && other.len() > 1 && !is_pair([0, 1]) && !is_pair([1, 0])
}

/// The ends of an edge.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ends {
    /// Source, and target, by their positions in the table.
    pub columns: [usize; 2],
    /// Whether the options or the names say so; otherwise no other two columns can be ids.
    pub are_named: bool,
}

/// A question to the user, and the columns that it is about.
#[derive(Debug, PartialEq)]
pub struct Question {
    /// The question.
    pub text: String,
    /// Positions of the columns.
    pub candidates: Vec<usize>,
}

/// The ends of an edge among `fields`, where options may name `source` and `target`. The error is
/// the question to ask.
pub fn choose(
    fields: &[Field],
    source: Option<usize>,
    target: Option<usize>,
) -> Result<Ends, Question> {
    if let (Some(source), Some(target)) = (source, target) {
        return Ok(Ends { columns: [source, target], are_named: true });
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
        [columns] => return Ok(Ends { columns, are_named: true }),
        [] => {}
        _ => {
            let pairs: Vec<String> =
                named.iter().map(|&[u, v]| format!("{} to {}", shown(u), shown(v))).collect();
            let text = format!("edges may go from {}", pairs.join(", or from "));
            let mut candidates = named.concat();
            candidates.sort_unstable();
            candidates.dedup();
            return Err(Question { text, candidates });
        }
    }
    let exact: Vec<usize> =
        able.iter().copied().filter(|&at| given(at) || !fields[at].is_fractional).collect();
    let able = if exact.len() < 2 { able } else { exact };
    match able[..] {
        [one, other] => {
            let is_turned = source == Some(other) || target == Some(one);
            let columns = if is_turned { [other, one] } else { [one, other] };
            Ok(Ends { columns, are_named: source.is_some() || target.is_some() })
        }
        [] | [_] => {
            let text = format!(
                "expected two columns of integers or strings, the ends of an edge. There are {}",
                names(fields)
            );
            Err(Question { text, candidates: Vec::new() })
        }
        _ => Err(Question {
            text: "which columns are the ends of an edge?".into(),
            candidates: able,
        }),
    }
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
        let name = |at: usize| fields[at].name.as_str();
        match choose(&fields, None, None) {
            Ok(Ends { columns, .. }) => Ok(columns.map(name).join(" ")),
            Err(Question { text, candidates }) => {
                Err([vec![text.as_str()], candidates.into_iter().map(name).collect()]
                    .concat()
                    .join(" "))
            }
        }
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
            ("id,parent", "id parent"),
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
            ("a1,b1,c1", "which columns are the ends of an edge? a1 b1 c1"),
            ("author,paper,year", "which columns are the ends of an edge? author paper year"),
            ("id,author,paper", "which columns are the ends of an edge? id author paper"),
            ("edge_id,user_id,item_id", "which columns"),
            ("Id,OwnerUserId,ParentId", "which columns"),
            ("item,property,value", "which columns"),
            (
                "From Bank,Account,To Bank,Account.1",
                "from `From Bank` to `To Bank`, or from `Account` to `Account.1`",
            ),
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
    fn kinds_are_told_by_nouns() {
        for (source, target, two) in [
            ("user_id", "item_id", true),
            ("order_id", "product_id", true),
            ("actor_id", "repo_id", true),
            ("Users", "Products", true),
            ("buyer", "seller", true),
            ("src", "dst", false),
            ("user_a", "user_b", false),
            ("author", "author_id", false),
            ("from_user", "to_user", false),
            ("id", "parent_id", false),
            ("node", "neighbour", false),
            ("x", "y", false),
        ] {
            assert_eq!(are_two_kinds(source, target), two, "{source} {target}");
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
