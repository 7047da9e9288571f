"""Makes tables as people have them, of five kinds, each with what a model can learn and no more.

    python3 tests/tables.py KIND FOLDER [ROWS]

    customers   a segment of three by name, 4 of 5 customers in one; numbers of very different size, places, plans, account numbers
    fraud       2 % of the accounts are in rings; is_fraud is 0 or 1
    prices      the price of a house follows its street's, a number
    interests   likes_*: any of six
    ratings     users and items by numbers that overlap; edges.csv alone

Writes FOLDER/nodes.csv and FOLDER/edges.csv. What a row is shows in its neighbours more than in itself, as in real graphs: groups
share it, and edges stay in a group for the most part. The same numbers on every machine: Python's own generator, seeded.
"""

import csv
import math
import random
import sys
from pathlib import Path


def write(folder, name, head, rows):
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / name, "w", newline="", encoding="utf-8") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerow(head)
        out.writerows(rows)


def groups(draw, rows, size):
    """Group of every row, and edges that stay in it nine times of ten, each listed once."""
    of = [draw.randrange(max(1, rows // size)) for _ in range(rows)]
    members = {}
    for row, group in enumerate(of):
        members.setdefault(group, []).append(row)
    edges = set()
    for row, group in enumerate(of):
        for _ in range(4):
            other = draw.choice(members[group]) if draw.random() < 0.9 else draw.randrange(rows)
            if other != row and (other, row) not in edges:
                edges.add((row, other))
    return of, sorted(edges)


def customers(draw, folder, rows):
    of, edges = groups(draw, rows, 25)
    segments = ["regular", "regular", "regular", "regular", "loyal", "regular", "regular", "regular", "regular", "at risk"]
    cities = ["Oslo", "Rome", "Bonn", "Kyiv", "Lyon"]
    lines = []
    for row, group in enumerate(of):
        segment = segments[group % 10]
        kind = {"regular": 0, "loyal": 1, "at risk": -1}[segment]
        age = min(95, max(18, round(draw.gauss(44 + 9 * kind, 11))))
        income = round(math.exp(draw.gauss(10.5 + 0.45 * kind, 0.45)), 2)
        plan = draw.choices(["basic", "plus", "pro"], [5 - 2 * kind, 3, 3 + 2 * kind])[0]
        city = draw.choice(cities)
        account = draw.randrange(10_000_000, 99_999_999)
        lines.append([5000 + row, account, f"{draw.randrange(1000, 99999):05}", age, income, plan, city, segment])
    head = ["customer_id", "account_no", "zip", "age", "income", "plan", "city", "segment"]
    write(folder, "nodes.csv", head, lines)
    write(folder, "edges.csv", ["from_customer", "to_customer"], [(5000 + u, 5000 + v) for u, v in edges])
    return "segment"


def fraud(draw, folder, rows):
    of, edges = groups(draw, rows, 20)
    lines = []
    for row, group in enumerate(of):
        is_fraud = group % 50 == 7
        amount = round(math.exp(draw.gauss(4.2 + 0.8 * is_fraud, 1.0)), 2)
        nights = draw.gauss(0.2 + 0.25 * is_fraud, 0.2)
        country = draw.choices(["DE", "FR", "PL", "MT"], [5, 5, 5, 5 if is_fraud else 1])[0]
        lines.append([f"A{row:05}", amount, round(nights, 4), draw.randrange(1, 60), country, int(is_fraud)])
    write(folder, "nodes.csv", ["account", "mean_amount", "share_at_night", "months", "country", "is_fraud"], lines)
    write(folder, "edges.csv", ["payer", "payee"], [(f"A{u:05}", f"A{v:05}") for u, v in edges])
    return "is_fraud"


def prices(draw, folder, rows):
    of, edges = groups(draw, rows, 20)
    street = [draw.gauss(0, 1) for _ in range(rows)]
    lines = []
    for row, group in enumerate(of):
        area, rooms = round(math.exp(draw.gauss(4.5, 0.35)), 1), draw.randrange(1, 8)
        noise = draw.gauss(street[group], 1.2)
        year = draw.randrange(1900, 2024)
        price = 1500 * area + 9000 * rooms + 60_000 * street[group] + 300 * (year - 1960) + draw.gauss(0, 9000)
        lines.append([row + 1, area, rooms, year, round(noise, 3), draw.choice(["brick", "wood", "concrete"]), round(price, 2)])
    write(folder, "nodes.csv", ["house", "area", "rooms", "year_built", "traffic", "walls", "price"], lines)
    write(folder, "edges.csv", ["house_a", "house_b"], [(u + 1, v + 1) for u, v in edges])
    return "price"


def interests(draw, folder, rows):
    of, edges = groups(draw, rows, 25)
    topics = ["art", "books", "chess", "dance", "film", "garden"]
    taste = [[draw.random() < 0.4 for _ in topics] for _ in range(rows)]
    lines = []
    for row, group in enumerate(of):
        likes = [int(liked) if draw.random() < 0.97 else int(not liked) for liked in taste[group]]
        hours = [round(max(0.0, draw.gauss(3 + 2.5 * liked, 2.5)), 2) for liked in taste[group]]
        lines.append([f"u{row}", draw.randrange(16, 80), *hours, *likes])
    head = ["user", "age", *(f"hours_{topic}" for topic in topics), *(f"likes_{topic}" for topic in topics)]
    write(folder, "nodes.csv", head, lines)
    write(folder, "edges.csv", ["user_a", "user_b"], [(f"u{u}", f"u{v}") for u, v in edges])
    return "likes_*"


def ratings(draw, folder, rows):
    users, items, taste = rows, max(20, rows // 6), 8
    of_item = [draw.randrange(taste) for _ in range(items)]
    popular = [math.exp(draw.gauss(0, 0.7)) for _ in range(items)]
    lines = []
    for user in range(users):
        liked = {draw.randrange(taste), draw.randrange(taste)}
        weights = [popular[item] * (12 if of_item[item] in liked else 1) for item in range(items)]
        chosen = {draw.choices(range(items), weights)[0] for _ in range(14)}
        lines.extend((user + 1, item + 1) for item in sorted(chosen))
    write(folder, "edges.csv", ["user_id", "item_id"], lines)
    return None


KINDS = {"customers": (customers, 2000), "fraud": (fraud, 4000), "prices": (prices, 2000), "interests": (interests, 2000),
         "ratings": (ratings, 600)}


def make(kind, folder, rows=None):
    """Writes the tables, and returns the columns of the label."""
    maker, usual = KINDS[kind]
    return maker(random.Random(kind), Path(folder), rows or usual)


if __name__ == "__main__":
    if len(sys.argv) < 3 or sys.argv[1] not in KINDS:
        sys.exit(__doc__)
    print(make(sys.argv[1], sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else None) or "no label: links")
