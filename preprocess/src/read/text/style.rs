//! Numbers as spreadsheets write them: decimal commas, thousands, percents, amounts of money, and
//! dates.
//!
//! A column is written in one style, decided by its cells, which are then read as plain numbers.
//! Cells of no style, such as `#N/A`, do not hide the style of most others: the caller refuses
//! them. If a comma may be either mark, the user is asked, unless another column of the table
//! answers it.

use std::borrow::Cow;
use std::collections::BTreeSet;

use chrono::{Datelike, NaiveDate};
use serde::{Deserialize, Serialize};

use super::field::{real, shown};
use super::value::{integer, is_missing};

/// Decimal mark of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Decimal {
    /// `1.5`; a comma separates thousands.
    #[serde(alias = ".")]
    Point,
    /// `1,5`; a point separates thousands.
    #[serde(alias = ",")]
    Comma,
}

/// Style of the cells of a column.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Style {
    /// Numbers as programs write them, or anything else.
    #[default]
    Plain,
    /// Commas or points between thousands, and the other mark before the fraction.
    Marks(Decimal),
    /// Hundredths with a percent sign.
    Percent,
    /// Amounts with this currency sign before or behind them, and marks as in [`Style::Marks`].
    Money(char, Decimal),
    /// Dates, perhaps with a time: days since 1970.
    Date(DateOrder),
}

/// Order of day, month and year in a date.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum DateOrder {
    /// `2020-01-31`, ISO 8601.
    #[serde(rename = "ymd", skip_deserializing)]
    YearMonthDay,
    /// `31.01.2020` and `31/01/2020`.
    #[serde(rename = "dmy")]
    DayMonthYear,
    /// `01/31/2020`.
    #[serde(rename = "mdy")]
    MonthDayYear,
}

impl DateOrder {
    const ALL: [Self; 3] = [Self::YearMonthDay, Self::DayMonthYear, Self::MonthDayYear];

    /// The order that the schema calls `name`.
    pub fn named(name: &str) -> Option<Self> {
        [Self::DayMonthYear, Self::MonthDayYear].into_iter().find(|order| order.name() == name)
    }

    /// Its name in the schema.
    pub fn name(self) -> &'static str {
        match self {
            Self::YearMonthDay => "ymd",
            Self::DayMonthYear => "dmy",
            Self::MonthDayYear => "mdy",
        }
    }
}

/// Number whose fraction begins with `decimal`, without marks between thousands.
fn without_marks(cell: &[u8], decimal: Decimal) -> Option<Vec<u8>> {
    let (mark, between) = if decimal == Decimal::Point { (b'.', b',') } else { (b',', b'.') };
    let (cell, exponent) =
        cell.split_at(cell.iter().position(|byte| b"eE".contains(byte)).unwrap_or(cell.len()));
    let digits = cell.strip_prefix(b"-").or_else(|| cell.strip_prefix(b"+")).unwrap_or(cell);
    let (whole, fraction) = match digits.iter().position(|&byte| byte == mark) {
        Some(at) => (&digits[..at], Some(&digits[at + 1..])),
        None => (digits, None),
    };
    let mut groups = whole.split(|&byte| byte == between);
    let first = groups.next()?;
    let is_number = |digits: &[u8]| !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    let rest: Vec<&[u8]> = groups.collect();
    // Nobody writes `0,500` for five hundred, or `1,234e5`.
    let starts = (1..=3).contains(&first.len()) && !first.starts_with(b"0");
    let grouped = rest.is_empty()
        || (exponent.is_empty() && starts && rest.iter().all(|group| group.len() == 3));
    if !grouped || !is_number(first) || !rest.iter().all(|group| is_number(group)) {
        return None;
    }
    if !fraction.is_none_or(is_number)
        || !(exponent.is_empty() || integer(&exponent[1..]).is_some())
    {
        return None;
    }
    let sign = &cell[..cell.len() - digits.len()];
    let mut number = [sign, first, &rest.concat()].concat();
    number.extend(fraction.iter().flat_map(|fraction| [b".", *fraction]).flatten());
    number.extend(exponent);
    Some(number)
}

/// The amount in `cell` without its currency sign, and the sign.
fn without_sign(cell: &[u8]) -> Option<(char, String)> {
    let is_sign = |c: char| matches!(c, '$' | '\u{a2}'..='\u{a5}' | '\u{20a0}'..='\u{20cf}');
    let text = std::str::from_utf8(cell).ok()?;
    let sign = text.chars().find(|&c| is_sign(c))?;
    let amount = text.replacen(sign, "", 1);
    let amount = amount.trim();
    Some((
        sign,
        match amount.strip_prefix('-') {
            Some(positive) => format!("-{}", positive.trim_start()),
            None => amount.to_string(),
        },
    ))
}

/// The first of `cells` that begins with a date but is not one, if most cells do so: its time or
/// its zone is unknown.
pub fn unknown_time<T>(cells: &[T], text: impl Fn(&T) -> &str) -> Option<&T> {
    let is_date =
        |text: &str| DateOrder::ALL.into_iter().any(|order| days(text.as_bytes(), order).is_some());
    let is_unknown = |cell: &&T| {
        let cell = text(cell);
        let (date, time) = cell.split_once(['T', ' ']).unwrap_or((cell, ""));
        is_date(date) && !is_date(cell) && time.starts_with(|c: char| c.is_ascii_digit())
    };
    let are_most = 2 * cells.iter().filter(is_unknown).count() > cells.len();
    cells.iter().find(is_unknown).filter(|_| are_most)
}

/// Days since 1970-01-01 of a date, with the time as a fraction.
fn days(cell: &[u8], order: DateOrder) -> Option<f64> {
    let text = std::str::from_utf8(cell).ok()?;
    let (date, time) = match text.split_once(['T', ' ']) {
        Some((date, time)) => (date, Some(time)),
        None => (text, None),
    };
    let marks: &[char] = if order == DateOrder::YearMonthDay { &['-', '/'] } else { &['.', '/'] };
    let parts: Vec<&str> = date.split(marks).collect();
    let [a, b, c] = parts[..] else { return None };
    let (year, month, day) = match order {
        DateOrder::YearMonthDay => (a, b, c),
        DateOrder::DayMonthYear => (c, b, a),
        DateOrder::MonthDayYear => (c, a, b),
    };
    let number = |text: &str, digits: usize| {
        (text.len() <= digits && text.bytes().all(|byte| byte.is_ascii_digit()))
            .then(|| text.parse::<u32>().ok())?
    };
    let year = number(year, 4).filter(|_| year.len() == 4)?;
    let (month, day) = (number(month, 2)?, number(day, 2)?);
    const DAYS_BEFORE_1970: i32 = 719_163;
    let whole =
        NaiveDate::from_ymd_opt(year as i32, month, day)?.num_days_from_ce() - DAYS_BEFORE_1970;
    Some(f64::from(whole) + time.map_or(Some(0.0), time_of_day)?)
}

/// Fraction of a day of `10:00`, `10:00:00.5`, `10:00:00Z`, `10:00+02:00` or `10:00 PM`.
fn time_of_day(text: &str) -> Option<f64> {
    let text = text.trim();
    let zone_at =
        text.find(|c: char| c.is_ascii_alphabetic() || "+-".contains(c)).unwrap_or(text.len());
    let (time, zone) = (text[..zone_at].trim_end(), &text[zone_at..]);
    let hours = |time: &str| {
        let (hours, minutes) = time.split_once(':')?;
        let (minutes, seconds) = minutes.split_once(':').unwrap_or((minutes, "0"));
        let [hours, minutes, seconds] = [hours, minutes, seconds]
            .map(|part| part.parse::<f64>().ok().filter(|&part| (0.0..60.0).contains(&part)));
        Some(hours? + minutes? / 60.0 + seconds? / 3600.0)
    };
    let offset = |offset: &str| match offset.split_at_checked(2) {
        Some((hours, minutes)) if offset.len() == 4 => {
            Some(hours.parse::<f64>().ok()? + minutes.parse::<f64>().ok()? / 60.0)
        }
        _ if offset.contains(':') => hours(offset),
        _ => offset.parse::<f64>().ok().filter(|hours| hours.abs() < 24.0),
    };
    let hour = hours(time)?;
    let utc = match zone {
        "" | "Z" | "UTC" | "GMT" => hour,
        "AM" | "am" if (1.0..13.0).contains(&hour) => hour % 12.0,
        "PM" | "pm" if (1.0..13.0).contains(&hour) => hour % 12.0 + 12.0,
        _ => match zone.split_at(1) {
            ("+", ahead) => hour - offset(ahead)?,
            ("-", behind) => hour + offset(behind)?,
            _ => return None,
        },
    };
    Some(utc / 24.0)
}

impl Style {
    /// `cell` with its number in plain notation; unchanged if it is not a number. Fails for a number
    /// that is written in another style: it would mean something else.
    pub fn plain<'c>(self, cell: &'c [u8]) -> Result<Cow<'c, [u8]>, String> {
        let number = match self {
            Self::Plain => return Ok(Cow::Borrowed(cell)),
            // Without a mark it is a plain number.
            Self::Marks(Decimal::Point) if !cell.contains(&b',') => None,
            Self::Marks(Decimal::Comma) if !cell.iter().any(|byte| matches!(byte, b',' | b'.')) => {
                None
            }
            Self::Marks(decimal) => without_marks(cell, decimal),
            Self::Percent => percent(cell).map(|number| number.to_string().into_bytes()),
            Self::Money(sign, decimal) => without_sign(cell)
                .filter(|(found, _)| *found == sign)
                .and_then(|(_, amount)| without_marks(amount.as_bytes(), decimal)),
            Self::Date(order) => days(cell, order).map(|days| days.to_string().into_bytes()),
        };
        let is_number = || real::<f64>(cell).is_some_and(|number| !number.is_nan());
        let is_other_number = || is_number() && real(cell) != Some(0.0);
        let expected = match self {
            _ if number.is_some() => None,
            Self::Marks(Decimal::Comma) if has_fraction(cell, Decimal::Point) => {
                Some("a comma before the fraction".into())
            }
            Self::Marks(Decimal::Point) if has_fraction(cell, Decimal::Comma) => {
                Some("a point before the fraction".into())
            }
            Self::Percent if is_other_number() => Some("a percent sign".into()),
            Self::Money(sign, _) if is_other_number() || without_sign(cell).is_some() => {
                Some(format!("an amount in {sign}"))
            }
            Self::Date(_) if is_number() => Some("a date".to_string()),
            _ => None,
        };
        match expected {
            Some(expected) => {
                Err(format!("{}: expected {expected}, as in other rows", shown(cell)))
            }
            None => Ok(number.map_or(Cow::Borrowed(cell), Cow::Owned)),
        }
    }

    /// Styles that some of `cells` may be of.
    fn candidates(cells: &[&[u8]]) -> Vec<Self> {
        let amounts = cells.iter().filter_map(|cell| without_sign(cell));
        let signs: BTreeSet<char> = amounts.clone().map(|(sign, _)| sign).collect();
        let has_mark = amounts.clone().any(|(_, amount)| amount.contains(['.', ',']));
        // Without a mark both are the same.
        let marks =
            if has_mark { &[Decimal::Point, Decimal::Comma][..] } else { &[Decimal::Point] };
        let dates = DateOrder::ALL.map(Self::Date);
        let money =
            signs.iter().flat_map(|&sign| marks.iter().map(move |&mark| Self::Money(sign, mark)));
        let marks = [Self::Percent, Self::Marks(Decimal::Point), Self::Marks(Decimal::Comma)];
        marks.into_iter().chain(dates).chain(money).collect()
    }

    /// Styles that match all `cells`, except missing ones and plain numbers; only the plain style
    /// if no other is needed.
    fn possible(cells: &[&[u8]]) -> Vec<Self> {
        let special: Vec<&[u8]> = cells
            .iter()
            .copied()
            .filter(|cell| !is_missing(cell) && real::<f64>(cell).is_none())
            .collect();
        let fits = |style: &Self| match style {
            // With commas a point may be either mark; without, it is plain, unless commas are known
            // to precede fractions.
            Self::Marks(decimal) => are_numbers(cells, *decimal),
            style => special.iter().all(|cell| matches!(style.plain(cell), Ok(Cow::Owned(_)))),
        };
        match special.is_empty() {
            true => vec![Self::Plain],
            false => Self::candidates(cells).into_iter().filter(fits).collect(),
        }
    }
}

/// Whether `cell` is a number with a fraction that begins with `decimal`, and no other mark.
fn has_fraction(cell: &[u8], decimal: Decimal) -> bool {
    let mark = if decimal == Decimal::Point { b'.' } else { b',' };
    let mut marks = cell.iter().filter(|byte| b".,".contains(byte));
    marks.next() == Some(&mark) && marks.next().is_none() && without_marks(cell, decimal).is_some()
}

/// The mark before most fractions of `cells`, if some have a point and others a comma. The reader
/// of the column refuses the others.
fn mixed(cells: &[&[u8]]) -> Option<Decimal> {
    let [points, commas] = [Decimal::Point, Decimal::Comma]
        .map(|decimal| cells.iter().filter(|cell| has_fraction(cell, decimal)).count());
    let whole = cells.iter().filter(|cell| is_missing(cell) || integer(cell).is_some()).count();
    let is_mixed = points > 0 && commas > 0 && points + commas + whole == cells.len();
    is_mixed.then_some(if points > commas { Decimal::Point } else { Decimal::Comma })
}

/// Whether all `cells` are numbers whose fraction begins with `decimal`, or missing.
fn are_numbers(cells: &[&[u8]], decimal: Decimal) -> bool {
    cells.iter().all(|cell| is_missing(cell) || without_marks(cell, decimal).is_some())
}

/// The styles that fit more than half of `cells`, if none fits all.
fn usual(cells: &[&[u8]]) -> Vec<Style> {
    let cells: Vec<&[u8]> = cells.iter().copied().filter(|cell| !is_missing(cell)).collect();
    let count = |style: Style| {
        let fits = |cell: &&&[u8]| match style {
            Style::Marks(decimal) => without_marks(cell, decimal).is_some(),
            style => matches!(style.plain(cell), Ok(Cow::Owned(_))) || real(cell) == Some(0.0),
        };
        let is_special = cells.iter().filter(fits).any(|cell| real::<f64>(cell).is_none());
        if is_special { cells.iter().filter(fits).count() } else { 0 }
    };
    let counted: Vec<(Style, usize)> =
        Style::candidates(&cells).into_iter().map(|style| (style, count(style))).collect();
    let most = counted.iter().map(|&(_, count)| count).max().filter(|most| 2 * most > cells.len());
    counted.into_iter().filter(|&(_, count)| Some(count) == most).map(|(style, _)| style).collect()
}

/// The value of a percentage: `5%` is 0.05.
fn percent(cell: &[u8]) -> Option<f64> {
    real::<f64>(cell.strip_suffix(b"%")?.trim_ascii_end()).map(|number| number / 100.0)
}

/// The style of each of `columns`, given by their names and first cells. The error is the question
/// if a column is ambiguous.
pub fn styles(
    columns: &[(&str, Vec<&[u8]>)],
    given: Option<Decimal>,
    order: Option<DateOrder>,
) -> Result<Vec<Style>, String> {
    let possible = |cells: &[&[u8]]| match Style::possible(cells) {
        none if none.is_empty() => usual(cells),
        some => some,
    };
    let possible: Vec<Vec<Style>> = columns.iter().map(|(_, cells)| possible(cells)).collect();
    let decimal = |styles: &Vec<Style>| match styles[..] {
        [Style::Marks(decimal) | Style::Money(_, decimal)] => Some(decimal),
        _ => None,
    };
    let decimal = given.or_else(|| possible.iter().find_map(decimal));
    let order_of = |styles: &Vec<Style>| match styles[..] {
        [Style::Date(order)] if order != DateOrder::YearMonthDay => Some(order),
        _ => None,
    };
    let order = order.or_else(|| possible.iter().find_map(order_of));
    let chosen = columns.iter().zip(possible).map(|((name, cells), possible)| match possible[..] {
        [] => Ok(mixed(cells).map_or(Style::Plain, |most| Style::Marks(given.unwrap_or(most)))),
        // Points without commas may separate thousands; and with an option, later cells may need
        // it.
        [Style::Plain] => Ok(match decimal {
            Some(decimal)
                if are_numbers(cells, decimal)
                    && (given.is_some() || decimal == Decimal::Comma) =>
            {
                Style::Marks(decimal)
            }
            _ => Style::Plain,
        }),
        [Style::Marks(found)] if given.is_some_and(|given| given != found) => Ok(Style::Plain),
        [style] => Ok(style),
        _ => {
            let is_special = |cell: &&&[u8]| {
                real::<f64>(cell).is_none() && matches!(possible[0].plain(cell), Ok(Cow::Owned(_)))
            };
            let first = cells.iter().find(is_special).copied().unwrap_or_default();
            match (possible[0], decimal) {
                (Style::Marks(_), Some(decimal)) => Ok(Style::Marks(decimal)),
                (Style::Money(sign, _), Some(decimal)) => Ok(Style::Money(sign, decimal)),
                (Style::Marks(_) | Style::Money(..), None) => Err(format!(
                    "column `{name}`: {} may be a thousand or more, or a fraction: pass --schema decimal=point or --schema decimal=comma",
                    shown(first)
                )),
                _ => order.map(Style::Date).ok_or_else(|| {
                    format!(
                        "column `{name}`: {} may begin with its day or its month: pass \
                         --schema date-order=dmy or --schema date-order=mdy",
                        shown(first)
                    )
                }),
            }
        }
    });
    chosen.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn style(cells: &[&str], given: Option<Decimal>) -> Result<Style, String> {
        let cells: Vec<&[u8]> = cells.iter().map(|cell| cell.as_bytes()).collect();
        styles(&[("x", cells)], given, None).map(|styles| styles[0])
    }

    #[test]
    fn columns_are_of_one_style() {
        use DateOrder::*;
        use Style::*;
        for (cells, expected) in [
            (&["1", "2.5", "NA"][..], Plain),
            (&["a", "1,5"], Plain),
            (&["0,5", "12", "-3,25"], Marks(Decimal::Comma)),
            (&["1,000", "12,345,678", "7"], Marks(Decimal::Point)),
            (&["1,234.5", "2"], Marks(Decimal::Point)),
            (&["1.234,5", "2"], Marks(Decimal::Comma)),
            (&["10%", "2.5 %", "?"], Percent),
            (&["2020-01-31", ""], Date(YearMonthDay)),
            (&["2020-01-31 10:00", "2020-02-01T00:00:00Z"], Date(YearMonthDay)),
            (&["31.01.2020", "1.2.2020"], Date(DayMonthYear)),
            (&["01/31/2020"], Date(MonthDayYear)),
            (&["2020-02-30"], Plain),
            (&["1.5", "2,000"], Marks(Decimal::Point)),
            (&["1,5", "2", "2,5", "1.5"], Marks(Decimal::Comma)),
            (&["1.5", "2.5", "1,5"], Marks(Decimal::Point)),
            (&["1,5", "1,234,567"], Plain),
            (&["0,5", "1,00E-05"], Marks(Decimal::Comma)),
            (&["0,5", "1,5e"], Plain),
            (&["12,34,56"], Plain),
            (&["€ 41,318.50", "-€ 7", "0"], Money('€', Decimal::Point)),
            (&["1.234,5 €", ""], Money('€', Decimal::Comma)),
            (&["$500", "$1000"], Money('$', Decimal::Point)),
            (&["$5.25", "€ 5.25"], Plain),
            (&["1.234,5", "0,5", "-", "0,25"], Marks(Decimal::Comma)),
            (&["2020-01-31", "soon", "2020-02-01"], Date(YearMonthDay)),
            (&["12%", "#N/A", "13%"], Percent),
            (&["$ 5.25", "€ 5.25", "€ 7"], Money('€', Decimal::Point)),
            (&["31/01/2020", "01/31/2020", "30/01/2020"], Date(DayMonthYear)),
            (&["12", "x", "13"], Plain),
            (&["2020-01-31 10:00 GMT", "2020-02-01 01:00 PM"], Date(YearMonthDay)),
            (&["", ""], Plain),
        ] {
            assert_eq!(style(cells, None), Ok(expected), "{cells:?}");
        }
        assert!(
            style(&["€ 41,318", "€ 7"], None)
                .unwrap_err()
                .contains("--schema decimal=point or --schema decimal=comma")
        );
        assert_eq!(
            style(&["€ 41,318", "€ 7"], Some(Decimal::Point)),
            Ok(Money('€', Decimal::Point))
        );
        assert_eq!(style(&["1.5", "2.5", "1,5"], Some(Decimal::Comma)), Ok(Marks(Decimal::Comma)));
        assert!(
            style(&["1,234", "5"], None).unwrap_err().contains("`1,234` may be a thousand or more")
        );
        assert_eq!(style(&["1,234", "5"], Some(Decimal::Comma)), Ok(Marks(Decimal::Comma)));
        let [one, other]: [Vec<&[u8]>; 2] = [vec![b"1,234"], vec![b"0,5"]];
        assert_eq!(
            styles(&[("x", one), ("y", other)], None, None),
            Ok(vec![Marks(Decimal::Comma); 2])
        );
        let both = |one: &'static [u8], other: &'static [u8]| {
            styles(&[("x", vec![one]), ("y", vec![other])], None, None).unwrap()
        };
        assert_eq!(
            both(b"1.234", b"0,5"),
            [Marks(Decimal::Comma); 2],
            "a neighbour proves the comma"
        );
        assert_eq!(both(b"1.5", b"0,5"), [Plain, Marks(Decimal::Comma)], "no group has one digit");
        assert_eq!(
            both(b"0.500", b"0,5"),
            [Plain, Marks(Decimal::Comma)],
            "no group is led by a zero"
        );
        assert_eq!(style(&["1.234", "5.678"], None), Ok(Plain), "nothing decides");
        assert_eq!(style(&["1.234", "5.678"], Some(Decimal::Comma)), Ok(Marks(Decimal::Comma)));
        assert_eq!(
            style(&["12", ""], Some(Decimal::Point)),
            Ok(Marks(Decimal::Point)),
            "later cells may have marks"
        );
        assert_eq!(style(&["0,500"], None), Ok(Marks(Decimal::Comma)));
        // Only another column, or the user, can distinguish days from months.
        let question = "column `x`: `01/02/2020` may begin with its day or its month: pass \
                        --schema date-order=dmy or --schema date-order=mdy";
        assert_eq!(style(&["01/02/2020"], None), Err(question.into()));
        let [one, other]: [Vec<&[u8]>; 2] = [vec![b"01/02/2020"], vec![b"31/12/2020"]];
        assert_eq!(
            styles(&[("x", one.clone()), ("y", other)], None, None),
            Ok(vec![Date(DayMonthYear); 2])
        );
        assert_eq!(styles(&[("x", one)], None, Some(MonthDayYear)), Ok(vec![Date(MonthDayYear)]));
    }

    #[test]
    fn times_that_are_not_known_are_found() {
        let found = |cells: &[&'static str]| unknown_time(cells, |cell| cell).copied();
        assert_eq!(
            found(&["2020-01-31 10:00 JST", "2020-01-31 11:00 JST"]),
            Some("2020-01-31 10:00 JST")
        );
        assert_eq!(found(&["2020-01-31 10:00 UTC", "2020-01-31 10:00"]), None);
        assert_eq!(found(&["2020-01-31 10:00 JST", "x", "y"]), None);
        assert_eq!(found(&["2020-01-31 moved", "2020-02-01 paid"]), None);
    }

    #[test]
    fn cells_become_plain_numbers() {
        let plain = |style: Style, cell: &str| {
            style.plain(cell.as_bytes()).map(|cell| String::from_utf8_lossy(&cell).into_owned())
        };
        let number = |text: &str| Ok(text.to_string());
        assert_eq!(plain(Style::Marks(Decimal::Comma), "-1.234,5"), number("-1234.5"));
        assert_eq!(plain(Style::Marks(Decimal::Point), "12,345,678"), number("12345678"));
        assert_eq!(plain(Style::Marks(Decimal::Comma), "1,00E-05"), number("1.00E-05"));
        assert_eq!(plain(Style::Marks(Decimal::Point), "1.234e5"), number("1.234e5"));
        assert_eq!(plain(Style::Percent, "12.5%"), number("0.125"));
        assert_eq!(plain(Style::Money('€', Decimal::Comma), "- € 1.234,5"), number("-1234.5"));
        assert_eq!(plain(Style::Money('$', Decimal::Point), "12,345 $"), number("12345"));
        for (date, days) in [
            ("1970-01-01", "0"),
            ("1970-01-02 12:00", "1.5"),
            ("2000-02-29", "11016"),
            ("2020-01-31T00:00:00Z", "18292"),
            ("2020-01-31T06:00:00+06:00", "18292"),
            ("2020-01-31 06:00 +0600", "18292"),
            ("2020-01-31 00:00:00 GMT", "18292"),
            ("2020-01-31 12:00 AM", "18292"),
            ("1970-01-02 12:00 pm", "1.5"),
            ("1969-12-31", "-1"),
        ] {
            assert_eq!(plain(Style::Date(DateOrder::YearMonthDay), date), number(days), "{date}");
        }
        assert_eq!(plain(Style::Date(DateOrder::DayMonthYear), "31.1.2020"), number("18292"));
        assert_eq!(plain(Style::Date(DateOrder::YearMonthDay), "soon"), number("soon"));
        for (style, cell, expected) in [
            (Style::Marks(Decimal::Comma), "1.5", "a comma before the fraction"),
            (Style::Marks(Decimal::Comma), "1.234e5", "a comma before the fraction"),
            (Style::Marks(Decimal::Point), "1,5", "a point before the fraction"),
            (Style::Percent, "0.5", "a percent sign"),
            (Style::Money('€', Decimal::Point), "$ 5", "an amount in €"),
            (Style::Money('€', Decimal::Point), "5", "an amount in €"),
            (Style::Date(DateOrder::DayMonthYear), "2020", "a date"),
        ] {
            assert_eq!(
                plain(style, cell),
                Err(format!("`{cell}`: expected {expected}, as in other rows"))
            );
            assert_eq!(plain(style, "NA"), number("NA"));
        }
        assert_eq!(plain(Style::Percent, "0"), number("0"));
        assert_eq!(plain(Style::Marks(Decimal::Comma), "1e5"), number("1e5"));
    }
}
