"""The client without ``async``, made of the asynchronous one."""
