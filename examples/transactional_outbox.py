"""An order and its task are one transaction; so are the task's own writes and its completion.

    python examples/transactional_outbox.py

It prints:

    order 1: rolled back, tasks waiting: 0
    order 2: committed, tasks waiting: 1
    parcels: [2]
"""

from __future__ import annotations

import os

import psycopg
from tasklib import Worker, sync, task


@task(transactional=True)
async def ship(connection: psycopg.AsyncConnection, order: int) -> None:
    """The parcel and the completion of this task commit together: one parcel, however often this runs."""
    await connection.execute("INSERT INTO example_parcels VALUES (%s)", [order])


def place_order(connection: psycopg.Connection, order: int) -> None:
    """The order and its task commit together, when the caller commits."""
    connection.execute("INSERT INTO example_orders VALUES (%s)", [order])
    ship.on(connection).submit(order=order)


def waiting() -> int:
    return len(sync.list_tasks(name="ship", state="pending"))


def main() -> None:
    with psycopg.connect(os.environ["TASKLIB_DATABASE_URL"]) as connection:
        connection.execute("DROP TABLE IF EXISTS example_orders, example_parcels")
        connection.execute("CREATE TABLE example_orders (number integer PRIMARY KEY)")
        connection.execute("CREATE TABLE example_parcels (order_number integer)")
        connection.commit()

        place_order(connection, 1)
        connection.rollback()
        print(f"order 1: rolled back, tasks waiting: {waiting()}")

        place_order(connection, 2)
        connection.commit()
        print(f"order 2: committed, tasks waiting: {waiting()}")

        Worker(burst=True).run_sync()
        parcels = [number for (number,) in connection.execute("SELECT order_number FROM example_parcels")]
        print(f"parcels: {parcels}")


if __name__ == "__main__":
    main()
