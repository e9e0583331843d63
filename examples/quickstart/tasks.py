from tasklib import task


@task
async def send_email(to: str, subject: str) -> str:
    print(f"sending {subject!r} to {to}")
    return f"sent to {to}"
