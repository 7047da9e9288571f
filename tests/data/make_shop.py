#!/usr/bin/env python3
"""Makes examples/shop: customers, items, their orders until a day, and who ordered within 90 days from then. All of it is made up."""

import csv
import datetime
import math
import random
from pathlib import Path

OUT = Path(__file__).resolve().parent.parent.parent / "examples" / "shop"
UNTIL = datetime.date(2025, 10, 1)
CITIES = ["Bergen", "Ghent", "Leeds", "Porto", "Turku"]
CATEGORIES = {"coffee": 1.5, "tea": 1.0, "cups": -0.6, "gifts": -1.6}


def write(name, header, rows):
    with open(OUT / name, "w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(rows)


def main():
    draw = random.Random(20251001)
    items, quality = [], []
    for item in range(60):
        category = draw.choice(list(CATEGORIES))
        items.append([f"i{item:02}", category, f"{draw.lognormvariate(2.2, 0.6):.2f}"])
        quality.append(CATEGORIES[category] + draw.gauss(0, 0.5))
    customers, orders, answers = [], [], []
    for customer in range(900):
        name = f"c{customer:03}"
        joined = UNTIL - datetime.timedelta(days=draw.randrange(30, 900))
        customers.append([name, draw.choice(CITIES), draw.randrange(18, 80), joined.isoformat()])
        count = 1 + min(int(draw.expovariate(0.3)), 15)
        bought = [draw.randrange(len(items)) for _ in range(count)]
        for item in bought:
            day = joined + datetime.timedelta(days=draw.randrange((UNTIL - joined).days))
            # Good items are rarely sent back.
            returned = draw.random() < 1 / (1 + math.exp(1.5 + 1.2 * quality[item]))
            orders.append([day.isoformat(), name, items[item][0], draw.randrange(1, 4), "yes" if returned else "no"])
        liked = sum(quality[item] for item in bought) / math.sqrt(count)
        comes = draw.random() < 1 / (1 + math.exp(-(2.5 * liked + 0.3 * count - 1.5)))
        split = draw.choices(["train", "valid", "test"], [6, 2, 2])[0]
        answers.append([name, "yes" if comes else "no", split])
    orders.sort()
    write("customers.csv", ["customer_id", "city", "age", "joined"], customers)
    write("items.csv", ["item_id", "category", "price"], items)
    numbered = [[10001 + number, *order] for number, order in enumerate(orders)]
    write("orders.csv", ["order_id", "day", "customer_id", "item_id", "quantity", "sent_back"], numbered)
    write("returns.csv", ["customer_id", "orders_again", "split"], answers)


if __name__ == "__main__":
    main()
