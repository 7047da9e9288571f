//! Numbers as spreadsheets write them: decimal commas, thousands, percents, and dates.
//!
//! A column is written in one style, told by its first rows; its cells are then read as plain numbers. A comma that may be either is a
//! question to the user, unless another column of the table answers it.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use serde::{Serialize, Serializer};

use super::field::{real, shown};
use super::value::{integer, is_missing};

/// Mark before the fraction of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decimal {
    /// `1.5`; a comma stands between thousands.
    Point,
    /// `1,5`; a point stands between thousands.
    Comma,
}

impl FromStr for Decimal {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "point" | "." => Ok(Self::Point),
            "comma" | "," => Ok(Self::Comma),
            _ => Err(format!("`{text}`: expected point or comma")),
        }
    }
}

impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if *self == Self::Point { "point" } else { "comma" })
    }
}

impl Serialize for Decimal {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
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
    /// Dates, perhaps with a time: days since 1970.
    Date(DateOrder),
}

/// Order of day, month and year in a date.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DateOrder {
    /// `2020-01-31`, ISO 8601.
    YearMonthDay,
    /// `31.01.2020` and `31/01/2020`.
    DayMonthYear,
    /// `01/31/2020`.
    MonthDayYear,
}

impl FromStr for DateOrder {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "dmy" => Ok(Self::DayMonthYear),
            "mdy" => Ok(Self::MonthDayYear),
            _ => Err(format!("`{text}`: expected dmy or mdy")),
        }
    }
}

impl fmt::Display for DateOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::YearMonthDay => "ymd",
            Self::DayMonthYear => "dmy",
            Self::MonthDayYear => "mdy",
        })
    }
}

impl Serialize for DateOrder {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// The first of `cells` that is no date, where most are, in the order that most of them are in.
pub fn stray_date<'c>(cells: impl Iterator<Item = &'c str> + Clone) -> Option<(&'c str, DateOrder)> {
    let orders = [DateOrder::YearMonthDay, DateOrder::DayMonthYear, DateOrder::MonthDayYear];
    let is_date = |cell: &str, order| days(cell.as_bytes(), order).is_some();
    let dates = cells.clone().filter(|cell| orders.iter().any(|&order| is_date(cell, order))).count();
    let order = orders.into_iter().max_by_key(|&order| cells.clone().filter(|cell| is_date(cell, order)).count())?;
    let mut strays = cells.clone().filter(|cell| !is_date(cell, order));
    strays.next().filter(|_| 2 * dates > cells.count()).map(|stray| (stray, order))
}

/// Number whose fraction begins with `decimal`, without marks between thousands.
fn without_marks(cell: &[u8], decimal: Decimal) -> Option<Vec<u8>> {
    let (mark, between) = if decimal == Decimal::Point { (b'.', b',') } else { (b',', b'.') };
    let (cell, exponent) = cell.split_at(cell.iter().position(|byte| b"eE".contains(byte)).unwrap_or(cell.len()));
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
    let grouped = rest.is_empty() || (exponent.is_empty() && starts && rest.iter().all(|group| group.len() == 3));
    if !grouped || !is_number(first) || !rest.iter().all(|group| is_number(group)) {
        return None;
    }
    if !fraction.is_none_or(is_number) || !(exponent.is_empty() || integer(&exponent[1..]).is_some()) {
        return None;
    }
    let sign = &cell[..cell.len() - digits.len()];
    let mut number = [sign, first, &rest.concat()].concat();
    number.extend(fraction.iter().flat_map(|fraction| [b".", *fraction]).flatten());
    number.extend(exponent);
    Some(number)
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
        (text.len() <= digits && text.bytes().all(|byte| byte.is_ascii_digit())).then(|| text.parse::<i64>().ok())?
    };
    let year = number(year, 4).filter(|_| year.len() == 4)?;
    let (month, day) = (number(month, 2)?, number(day, 2)?);
    let length = match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return None,
    };
    if !(1..=length).contains(&day) {
        return None;
    }
    // Years begin in March, so that a leap day is the last (Hinnant, "chrono-compatible low-level date algorithms").
    let year = if month <= 2 { year - 1 } else { year };
    let of_year = (153 * (if month > 2 { month - 3 } else { month + 9 }) + 2) / 5 + day - 1;
    let whole = year * 365 + year / 4 - year / 100 + year / 400 + of_year - 719_468;
    Some(whole as f64 + time.map_or(Some(0.0), time_of_day)?)
}

/// Fraction of a day of `10:00`, `10:00:00.5`, `10:00:00Z` or `10:00+02:00`.
fn time_of_day(text: &str) -> Option<f64> {
    let text = text.trim();
    let zone_at = text.find(['Z', '+', '-']).unwrap_or(text.len());
    let (time, zone) = text.split_at(zone_at);
    let hours = |time: &str| {
        let (hours, minutes) = time.split_once(':')?;
        let (minutes, seconds) = minutes.split_once(':').unwrap_or((minutes, "0"));
        let [hours, minutes, seconds] =
            [hours, minutes, seconds].map(|part| part.parse::<f64>().ok().filter(|&part| (0.0..60.0).contains(&part)));
        Some(hours? + minutes? / 60.0 + seconds? / 3600.0)
    };
    let offset = match zone.split_at_checked(1) {
        None | Some(("Z", "")) => 0.0,
        Some((sign, offset)) => {
            let offset = if offset.contains(':') { hours(offset)? } else { offset.parse::<f64>().ok()? };
            if sign == "-" { -offset } else { offset }
        }
    };
    Some((hours(time)? - offset) / 24.0)
}

impl Style {
    /// `cell` as a program writes the number; itself where it is no number.
    ///
    /// # Errors
    /// A number that is written in another style: it would mean something else.
    pub fn plain<'c>(self, cell: &'c [u8]) -> Result<Cow<'c, [u8]>, String> {
        let number = match self {
            Self::Plain => return Ok(Cow::Borrowed(cell)),
            // Without a mark it is a plain number.
            Self::Marks(Decimal::Point) if !cell.contains(&b',') => None,
            Self::Marks(Decimal::Comma) if !cell.iter().any(|byte| matches!(byte, b',' | b'.')) => None,
            Self::Marks(decimal) => without_marks(cell, decimal),
            Self::Percent => percent(cell).map(|number| number.to_string().into_bytes()),
            Self::Date(order) => days(cell, order).map(|days| days.to_string().into_bytes()),
        };
        let is_number = || real::<f64>(cell).is_some_and(|number| !number.is_nan());
        let expected = match self {
            _ if number.is_some() => None,
            Self::Marks(Decimal::Comma) if has_fraction(cell, Decimal::Point) => Some("a comma before the fraction"),
            Self::Marks(Decimal::Point) if has_fraction(cell, Decimal::Comma) => Some("a point before the fraction"),
            Self::Percent if is_number() && real(cell) != Some(0.0) => Some("a percent sign"),
            Self::Date(_) if is_number() => Some("a date"),
            _ => None,
        };
        match expected {
            Some(expected) => Err(format!("{}: expected {expected}, as in other rows", shown(cell))),
            None => Ok(number.map_or(Cow::Borrowed(cell), Cow::Owned)),
        }
    }

    /// Styles that all `cells` may be of, but for missing ones and plain numbers; plain alone where one fits no other.
    fn possible(cells: &[&[u8]]) -> Vec<Self> {
        let special: Vec<&[u8]> =
            cells.iter().copied().filter(|cell| !is_missing(cell) && real::<f64>(cell).is_none()).collect();
        let all = [
            Self::Percent,
            Self::Marks(Decimal::Point),
            Self::Marks(Decimal::Comma),
            Self::Date(DateOrder::YearMonthDay),
            Self::Date(DateOrder::DayMonthYear),
            Self::Date(DateOrder::MonthDayYear),
        ];
        let fits = |style: &Self| match style {
            // A point may be either where commas are; alone it is plain, unless a comma is known to stand before fractions.
            Self::Marks(decimal) => are_numbers(cells, *decimal),
            Self::Percent => special.iter().all(|cell| percent(cell).is_some()),
            style => special.iter().all(|cell| matches!(style.plain(cell), Ok(Cow::Owned(_)))),
        };
        if special.is_empty() { vec![Self::Plain] } else { all.into_iter().filter(fits).collect() }
    }
}

/// Whether `cell` is a number with a fraction that begins with `decimal`, and no other mark.
fn has_fraction(cell: &[u8], decimal: Decimal) -> bool {
    let mark = if decimal == Decimal::Point { b'.' } else { b',' };
    let mut marks = cell.iter().filter(|byte| b".,".contains(byte));
    marks.next() == Some(&mark) && marks.next().is_none() && without_marks(cell, decimal).is_some()
}

/// The mark before most fractions of `cells`, where some have a point and others a comma. Whoever reads the column refuses the others.
fn mixed(cells: &[&[u8]]) -> Option<Decimal> {
    let [points, commas] =
        [Decimal::Point, Decimal::Comma].map(|decimal| cells.iter().filter(|cell| has_fraction(cell, decimal)).count());
    let whole = cells.iter().filter(|cell| is_missing(cell) || integer(cell).is_some()).count();
    let is_mixed = points > 0 && commas > 0 && points + commas + whole == cells.len();
    is_mixed.then_some(if points > commas { Decimal::Point } else { Decimal::Comma })
}

/// Whether all `cells` are numbers whose fraction begins with `decimal`, or missing.
fn are_numbers(cells: &[&[u8]], decimal: Decimal) -> bool {
    cells.iter().all(|cell| is_missing(cell) || without_marks(cell, decimal).is_some())
}

/// The number that hundredths are.
fn percent(cell: &[u8]) -> Option<f64> {
    real::<f64>(cell.strip_suffix(b"%")?.trim_ascii_end()).map(|number| number / 100.0)
}

/// The style of each of `columns`, whose names and first cells these are. The error is the question where one may be read in two ways.
pub fn styles(
    columns: &[(&str, Vec<&[u8]>)],
    given: Option<Decimal>,
    order: Option<DateOrder>,
) -> Result<Vec<Style>, String> {
    let possible: Vec<Vec<Style>> = columns.iter().map(|(_, cells)| Style::possible(cells)).collect();
    let decimal = |styles: &Vec<Style>| match styles[..] {
        [Style::Marks(decimal)] => Some(decimal),
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
        // Points alone may stand between thousands; and of an option later cells may need it.
        [Style::Plain] => Ok(match decimal {
            Some(decimal) if are_numbers(cells, decimal) && (given.is_some() || decimal == Decimal::Comma) => Style::Marks(decimal),
            _ => Style::Plain,
        }),
        [Style::Marks(found)] if given.is_some_and(|given| given != found) => Ok(Style::Plain),
        [style] => Ok(style),
        _ => {
            let first = cells.iter().find(|cell| !is_missing(cell) && real::<f64>(cell).is_none()).copied().unwrap_or_default();
            match (possible[0], decimal) {
                (Style::Marks(_), Some(decimal)) => Ok(Style::Marks(decimal)),
                (Style::Marks(_), None) => Err(format!(
                    "column `{name}`: {} may be a thousand or more, or a fraction: pass --decimal point or --decimal comma",
                    shown(first)
                )),
                _ => order.map(Style::Date).ok_or_else(|| {
                    format!(
                        "column `{name}`: {} may begin with its day or its month: pass --date-order dmy or --date-order mdy",
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
            (&["", ""], Plain),
        ] {
            assert_eq!(style(cells, None), Ok(expected), "{cells:?}");
        }
        assert_eq!(style(&["1.5", "2.5", "1,5"], Some(Decimal::Comma)), Ok(Marks(Decimal::Comma)));
        assert!(style(&["1,234", "5"], None).unwrap_err().contains("`1,234` may be a thousand or more"));
        assert_eq!(style(&["1,234", "5"], Some(Decimal::Comma)), Ok(Marks(Decimal::Comma)));
        let [one, other]: [Vec<&[u8]>; 2] = [vec![b"1,234"], vec![b"0,5"]];
        assert_eq!(styles(&[("x", one), ("y", other)], None, None), Ok(vec![Marks(Decimal::Comma); 2]));
        let both = |one: &'static [u8], other: &'static [u8]| {
            styles(&[("x", vec![one]), ("y", vec![other])], None, None).unwrap()
        };
        assert_eq!(both(b"1.234", b"0,5"), [Marks(Decimal::Comma); 2], "a neighbour proves the comma");
        assert_eq!(both(b"1.5", b"0,5"), [Plain, Marks(Decimal::Comma)], "no group has one digit");
        assert_eq!(both(b"0.500", b"0,5"), [Plain, Marks(Decimal::Comma)], "no group is led by a zero");
        assert_eq!(style(&["1.234", "5.678"], None), Ok(Plain), "nothing decides");
        assert_eq!(style(&["1.234", "5.678"], Some(Decimal::Comma)), Ok(Marks(Decimal::Comma)));
        assert_eq!(style(&["12", ""], Some(Decimal::Point)), Ok(Marks(Decimal::Point)), "later cells may have marks");
        assert_eq!(style(&["0,500"], None), Ok(Marks(Decimal::Comma)));
        // What tells days from months is another column, or the user.
        let question =
            "column `x`: `01/02/2020` may begin with its day or its month: pass --date-order dmy or --date-order mdy";
        assert_eq!(style(&["01/02/2020"], None), Err(question.into()));
        let [one, other]: [Vec<&[u8]>; 2] = [vec![b"01/02/2020"], vec![b"31/12/2020"]];
        assert_eq!(styles(&[("x", one.clone()), ("y", other)], None, None), Ok(vec![Date(DayMonthYear); 2]));
        assert_eq!(styles(&[("x", one)], None, Some(MonthDayYear)), Ok(vec![Date(MonthDayYear)]));
    }

    #[test]
    fn what_is_no_date_among_dates_is_found() {
        let found = |cells: &[&'static str]| stray_date(cells.iter().copied());
        assert_eq!(found(&["2020-01-31", "2020-02-30", "2020-03-01"]), Some(("2020-02-30", DateOrder::YearMonthDay)));
        assert_eq!(found(&["31/01/2020", "01/31/2020", "30/01/2020"]), Some(("01/31/2020", DateOrder::DayMonthYear)));
        assert_eq!(found(&["31/01/2020", "x", "y"]), None);
        assert_eq!(found(&["2020-01-31", "2020-03-01"]), None);
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
        for (date, days) in [
            ("1970-01-01", "0"),
            ("1970-01-02 12:00", "1.5"),
            ("2000-02-29", "11016"),
            ("2020-01-31T00:00:00Z", "18292"),
            ("2020-01-31T06:00:00+06:00", "18292"),
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
            (Style::Date(DateOrder::DayMonthYear), "2020", "a date"),
        ] {
            assert_eq!(plain(style, cell), Err(format!("`{cell}`: expected {expected}, as in other rows")));
            assert_eq!(plain(style, "NA"), number("NA"));
        }
        assert_eq!(plain(Style::Percent, "0"), number("0"));
        assert_eq!(plain(Style::Marks(Decimal::Comma), "1e5"), number("1e5"));
    }
}
