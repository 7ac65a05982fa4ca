"""The dashboard: one live page for anyone who may read the released data. docs/dashboard.md describes it.

    histogram, progress ─────────┐
    private-stream               ├──▶ feed.py ──▶ board.py of the kind ──▶ server.py ──▶ page/
    estimate                     │                        ▲
    charges ─────────────────────┴──▶ budget.py ──────────┘

It reads what the pipeline has published, and the log of charges. It never reads raw records, internal topics or the workers'
status, so a reader's rights suffice (`susurrus acls --dashboard`), and it needs no secret.
"""
