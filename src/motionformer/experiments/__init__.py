"""The paper's evidence: its tables, Long Range Arena, DAVIS and the demo. Nothing else imports it but the commands."""
