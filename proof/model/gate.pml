/* A gate, for Spin: two tasks report to it, one of which spawns a third, and two tasks wait for it. Statements of
   src/tasklib/sql are atomic steps, but for the fold, which has three: its snapshot, its lock, and what it writes. Between
   any two steps, other processes take theirs. One task may be cancelled. With DEATHS processes may die, and a leader
   sweeps; without, there is no sweep, and a task may be rescued and run again while the attempt that has lost it still
   writes.

   Variables marked "ghost" are read by no statement; the properties speak of them. Each MUTANT takes one part of the
   protocol away, and Spin has to find what goes wrong then: see run.py. */

#if MUTANT == 1
#define NO_SECOND_LOOK
#elif MUTANT == 2
#define COUNT_BEFORE_FENCE
#elif MUTANT == 3
#define OPEN_UNSEALED
#elif MUTANT == 4
#define NO_SWEEP
#elif MUTANT == 5
#define FOLD_WITHOUT_LOCK
#elif MUTANT == 6
#define COUNT_WHAT_IS_DELETED
#elif MUTANT == 7
#define ARRIVE_IN_ANOTHER_TRANSACTION
#elif MUTANT == 8
#define FORGET_WHAT_WAS_COUNTED
#endif

#ifndef DEATHS
#define DEATHS 1
#endif
#if DEATHS && !defined(NO_SWEEP)
#define SWEEP
#endif

#define PARENT 0         /* spawns the child */
#define CHILD 1
#define MEMBER 2
#define WAITERS 2
#if DEATHS
#define ATTEMPTS 3
#else
#define ATTEMPTS 4       /* an attempt that lives may be taken for dead */
#endif

/* Rows of `arrivals`, as bits: the ends of the three tasks, what the spawned one adds to `expected`, a request to look
   again, and an end that is reported by an attempt which has lost its task. */
#define END(task) (1 << (task))
#define GROWN 8
#define LOOK 16
#define STALE 32

byte arrivals = 0;

/* Rows of `tasks`. */
bool there[3] = { true, false, true };
bool ended[3];
bool bad[3];             /* it ended, but not as completed */
byte token[3] = { 1, 1, 1 };
byte waiting = WAITERS;  /* tasks that have the gate in waits_for */

/* The row of `gates`. */
byte expected = 2;
byte completed = 0;
byte failed = 0;
bool is_open = false;
bool is_failed = false;
bool locked = false;

/* sql/flows/fragments/worth_counting.sql: whether these arrivals, together with those that were counted before, may decide
   the gate. Others are left to the session that adds the last one. */
#define HAS_END(bits, task) (((bits) >> (task)) & 1)
#define HAS_BAD_END(bits, task) (HAS_END(bits, task) && bad[task])
#define ENDS(bits) (HAS_END(bits, PARENT) + HAS_END(bits, CHILD) + HAS_END(bits, MEMBER) + ((bits) / STALE))
#ifdef FORGET_WHAT_WAS_COUNTED
#define BEFORE 0
#else
#define BEFORE (completed + failed)
#endif
#define WORTH_COUNTING(bits) (is_open || is_failed || ((bits) & (GROWN | LOOK)) \
    || HAS_BAD_END(bits, PARENT) || HAS_BAD_END(bits, CHILD) || HAS_BAD_END(bits, MEMBER) \
    || BEFORE + ENDS(bits) >= expected)

/* Ghosts. */
byte counted = 0;        /* arrivals that were counted, as bits */
byte finished = 0;       /* attempts that have nothing left to do */
byte let_through = 0;
byte turned_away = 0;

#define quiet (finished == ATTEMPTS)

inline count_one(bit_, adds_completed, adds_failed, adds_expected) {
    if
    :: (taken & bit_) ->
        assert(!(counted & bit_) || (bit_) == LOOK);
        counted = counted | (bit_);
        now_completed = now_completed + adds_completed;
        now_failed = now_failed + adds_failed;
        now_expected = now_expected + adds_expected
    :: else
    fi
}

/* What the gate opens for: nothing unfinished may report to it. */
inline check_opening() {
    assert(ended[PARENT] && ended[MEMBER] && (!there[CHILD] || ended[CHILD]));
    assert(!bad[PARENT] && !bad[CHILD] && !bad[MEMBER])
}

inline decide() {
    if
    :: is_open -> skip
    :: !is_open && now_failed > 0 -> is_failed = true
#ifdef OPEN_UNSEALED
    :: !is_open && now_failed == 0 && now_completed >= now_expected - ((counted & END(PARENT)) -> 0 : 1) ->
#else
    :: !is_open && now_failed == 0 && now_completed >= now_expected ->
#endif
        check_opening();
        is_open = true
    :: else -> skip
    fi;
    /* A page is one task here: the rest is left to a later look. */
    if
    :: (is_open || is_failed) && waiting > 0 ->
        waiting--;
        if :: is_open -> let_through++ :: else -> turned_away++ fi;
        if :: waiting > 0 -> arrivals = arrivals | LOOK :: else fi
    :: else
    fi
}

/* sql/flows/fold.sql, repeated while there is something to count. The leader counts all there is. */
inline fold() {
    do
    :: atomic {
            snapshot = arrivals;
            if
            :: snapshot != 0 && (is_leader || WORTH_COUNTING(snapshot))
            :: else -> snapshot = 0; break
            fi
        };
        atomic {
#ifndef FOLD_WITHOUT_LOCK
            if
            :: locked -> snapshot = 0; break   /* SKIP LOCKED: left to the session that holds it */
            :: else -> locked = true
            fi;
#endif
            now_completed = completed; now_failed = failed; now_expected = expected
        }
        if
        :: DEATHS && may_die -> locked = false; goto dead   /* rolled back */
        :: true
        fi;
        atomic {
#ifdef COUNT_WHAT_IS_DELETED
            taken = snapshot;
#else
            taken = snapshot & arrivals;
#endif
            arrivals = arrivals & ~taken;
            count_one(END(PARENT), (bad[PARENT] -> 0 : 1), (bad[PARENT] -> 1 : 0), 0);
            count_one(END(CHILD), (bad[CHILD] -> 0 : 1), (bad[CHILD] -> 1 : 0), 0);
            count_one(END(MEMBER), (bad[MEMBER] -> 0 : 1), (bad[MEMBER] -> 1 : 0), 0);
            count_one(STALE, 1, 0, 0);
            count_one(GROWN, 0, 0, 1);
            if :: (taken & LOOK) -> counted = counted | LOOK :: else fi;
            completed = now_completed; failed = now_failed; expected = now_expected;
            decide();
            locked = false;
            snapshot = 0; taken = 0; now_completed = 0; now_failed = 0; now_expected = 0
        }
#ifdef NO_SECOND_LOOK
        break
#else
        if :: DEATHS && may_die -> goto dead :: true fi
#endif
    od
}

proctype Attempt(byte task; byte mine) {
    byte snapshot, taken, now_completed, now_failed, now_expected;
    bool may_die = true, held = false, is_leader = false;
    atomic {
        if
        :: there[task] && token[task] == mine -> skip
        :: ended[task] && token[task] < mine -> goto dead         /* it was never rescued */
        :: token[task] > mine -> goto dead                        /* it was, before this attempt began */
        :: ended[PARENT] && !there[CHILD] && task == CHILD -> goto dead
        fi
    }
    if :: DEATHS -> goto dead_in_the_midst :: true fi;
    if
    :: task == PARENT ->
        /* sql/flows/spawn.sql: the row of the parent is locked, so it can't end in between. */
        atomic {
            if
            :: token[PARENT] == mine && !ended[PARENT] && !there[CHILD] ->
                there[CHILD] = true; arrivals = arrivals | GROWN
            :: else
            fi
        }
    :: else
    fi;
    /* sql/settle/complete_reporting.sql; or sql/control/cancel.sql. */
    atomic {
        if
        :: task == MEMBER && !ended[task] ->
            ended[task] = true; bad[task] = true; held = false;
            arrivals = arrivals | END(task)
        :: token[task] == mine && !ended[task] ->
            ended[task] = true; held = true;
#ifndef ARRIVE_IN_ANOTHER_TRANSACTION
            arrivals = arrivals | END(task)
#endif
        :: else ->
            held = false;
#ifdef COUNT_BEFORE_FENCE
            if :: task == PARENT -> arrivals = arrivals | STALE :: else fi
#endif
        fi
    }
    if :: DEATHS -> goto dead :: true fi;
#ifdef ARRIVE_IN_ANOTHER_TRANSACTION
    if :: held -> atomic { arrivals = arrivals | END(task) } :: else fi;
#endif
    fold();
    goto dead;
dead_in_the_midst:
    /* Without an end of its own: the leader gives it up (sql/maintenance/rescue.sql). */
    atomic {
        if
        :: !ended[task] -> ended[task] = true; bad[task] = true; arrivals = arrivals | END(task)
        :: else
        fi
    };
dead:
    finished++
}

#if !DEATHS
active proctype Rescue() {
    if
    :: atomic { token[PARENT] == 1 && !ended[PARENT] -> token[PARENT] = 2 }
    :: true
    fi
}
#endif

#ifdef SWEEP
active proctype Leader() {
    byte snapshot, taken, now_completed, now_failed, now_expected;
    bool may_die = false, is_leader = true;
    do
    :: arrivals != 0 -> fold()
    :: arrivals == 0 && quiet -> break
    od;
dead:
    skip
}
#endif

init {
    atomic {
        run Attempt(PARENT, 1); run Attempt(CHILD, 1); run Attempt(MEMBER, 1);
#if !DEATHS
        run Attempt(PARENT, 2)
#endif
    }
    /* When all is quiet, nothing waits: the join was let through, or turned away, as a whole. */
    atomic {
#ifdef SWEEP
        quiet && arrivals == 0 && !locked ->
#else
        quiet ->
#endif
        assert(waiting == 0);
        assert(let_through == 0 || turned_away == 0);
        assert(let_through + turned_away == WAITERS)
    }
}
