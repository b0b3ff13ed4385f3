"""Several daemons over one home: who leads, who follows."""
