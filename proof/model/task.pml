/* The life of one task, for Spin: every statement in src/tasklib/sql that moves it is one atomic step here, and workers,
   leaders and people take their steps in every order there is. A process that is paused for long, or dies, is an order
   like any other.

   The variables marked "ghost" are read by no statement; the properties speak of them. Each MUTANT takes one guard away,
   and Spin has to find what goes wrong then: see run.py. */

#define MORTALS 1        /* workers that may die or be declared dead */
#define WORKERS 2        /* and those that may not: somebody has to finish the work */
#define CANDIDATES 2
#ifndef MAX_RETRIES
#define MAX_RETRIES 1
#endif
#ifndef ONCE
#define ONCE false       /* @task(at_most_once=True) */
#endif
#define CRASH_LIMIT 2
#ifndef MAX_LOST
#define MAX_LOST 2       /* leases that may run out */
#endif
#define MAX_TERM 2
#define NOBODY 9

#if MUTANT == 1
#define NO_TOKEN_GUARD
#elif MUTANT == 2
#define TOKEN_RESET
#elif MUTANT == 3
#define RESCUE_BY_ID
#elif MUTANT == 4
#define CLAIM_WITHOUT_RECHECK
#elif MUTANT == 5
#define LEADER_WITHOUT_TERM
#elif MUTANT == 6
#define EXTEND_LOST_LEASE
#elif MUTANT == 7
#define CANCEL_FINISHED
#elif MUTANT == 8
#define CALL_WITHOUT_RECORD
#elif MUTANT == 9
#define GIVE_BACK_BEGUN
#elif MUTANT == 10
#define RELEASE_BEGUN
#elif MUTANT == 11
#define POISON_WITHOUT_RECORD
#elif MUTANT == 12
#define BEGIN_WITHOUT_TOKEN
#endif

mtype = { pending, running, failed, completed, cancelled, dead_letter };

/* The task's row. */
mtype state = pending;
byte token = 0;
byte worker = NOBODY;
byte retries = 0;
byte crashes = 0;
byte begun = 0;          /* begun_token: the attempt whose beginning is on record; 0: none */
bool expired = false;    /* locked_until < now() */
bool cancel_asked = false;

/* The other tables. */
bool dead[WORKERS];
byte term = 0;

/* Ghosts. */
byte leases = 0;         /* how many were ever given; the last one is the current one */
byte highest_token = 0;
byte endings = 0;        /* terminal states since the submission or the last replay */
bool rescued = false;    /* the current lease was taken away, its holder may not know */
bool replayed = false;
byte calls = 0;          /* how often the function was called, by attempts of this life */
byte called = 0;         /* the token under which it was called last */
bool recorded = false;   /* a beginning was put on record in this life */
byte finished = 0;       /* processes that have nothing left to do */

#define claimable (state == pending || state == failed)
#define terminal (state == completed || state == cancelled || state == dead_letter)
#define over (terminal && replayed && finished == MORTALS + 2)

inline end_as(how) {
    assert(!terminal);   /* nothing leaves a terminal state but a replay, and nothing ends twice */
    assert(endings == 0);
    endings++;
    state = how;
    worker = NOBODY
}

inline go_on_as(what) {
    assert(!terminal);
    state = what;
    worker = NOBODY
}

/* A dead letter is of a function that began, or had been put on record as beginning. */
inline give_up() {
    assert(calls > 0 || recorded);
    end_as(dead_letter)
}

/* fail.sql: a retry, if one is left and nobody has cancelled. */
inline use_a_retry() {
    if
    :: cancel_asked -> end_as(cancelled)
    :: !cancel_asked && !ONCE && retries < MAX_RETRIES -> retries++; go_on_as(failed)
    :: !cancel_asked && (ONCE || retries == MAX_RETRIES) -> give_up()
    fi
}

#ifdef GIVE_BACK_BEGUN
#define given_up_when_lost (begun == token && !ONCE && crashes + 1 >= CRASH_LIMIT)
#elif defined(POISON_WITHOUT_RECORD)
#define given_up_when_lost (crashes + 1 >= CRASH_LIMIT)
#else
#define given_up_when_lost (begun == token && (ONCE || crashes + 1 >= CRASH_LIMIT))
#endif

/* rescue.sql: a lost worker uses no retry. What may have begun counts a crash: of the first, the place in the worker's
   order tells, which is right about all that did begin; of later ones, the record. What has not begun goes back. */
inline lose() {
    if
    :: cancel_asked -> end_as(cancelled)
    :: !cancel_asked && given_up_when_lost -> give_up()
    :: !cancel_asked && !given_up_when_lost && (begun == token || crashes == 0) ->
        if
        :: crashes < CRASH_LIMIT -> crashes++
        :: else -> skip
        fi;
        go_on_as(failed)
    :: !cancel_asked && !given_up_when_lost && begun != token && (crashes > 0 || called != token) ->
        assert(called != token);  /* once there was a crash, the record knows */
        go_on_as(pending)
    fi
}

/* claim.sql, claim_next.sql. */
inline lease_to(me) {
    assert(claimable);   /* what somebody else runs is never claimed */
    state = running;
    worker = me;
    expired = false;
    rescued = false;
    token++;
    mine = token;
    my_life = replayed;
    crashed_before = crashes > 0;
    leases++;
    my_lease = leases;
    assert(token > highest_token);  /* no two leases share a token */
    highest_token = token
}

#ifdef NO_TOKEN_GUARD
#define still_mine (state == running)
#else
#define still_mine (state == running && token == mine)
#endif

/* Whatever a worker writes about its task is the word of the one that holds the lease. */
#define by_the_holder assert(leases == my_lease && !rescued)

/* begin.sql: before the call, for what runs at most once or has crashed before. Not under a lease that has run out. */
#ifdef BEGIN_WITHOUT_TOKEN
#define may_begin (state == running)
#else
#define may_begin (state == running && token == mine && !expired)
#endif

inline begin() {
    atomic {
        if
#ifdef CALL_WITHOUT_RECORD
        :: true -> may_call = true
#else
        :: !ONCE && !crashed_before -> may_call = true
        :: (ONCE || crashed_before) && may_begin -> begun = token; recorded = true; may_call = true
        :: (ONCE || crashed_before) && !may_begin -> may_call = false
#endif
        fi
    }
}

/* A worker that was taken for lost may call the function late. Only the calls of this life count. */
inline call() {
    atomic {
        called = mine;
        if
        :: my_life == replayed && calls < 2 -> calls++
        :: else -> skip
        fi;
        assert(!ONCE || calls <= 1)
    }
}

#ifdef RELEASE_BEGUN
#define may_release (!released)
#else
#define may_release (!released && !(ONCE && begun == token))
#endif

inline settle() {
    atomic {
        if
        :: still_mine ->
            by_the_holder;
            if
            :: end_as(completed)                             /* complete.sql */
            :: use_a_retry()                                 /* fail.sql */
            :: cancel_asked -> end_as(cancelled)             /* stop.sql */
            :: may_release ->                                /* release.sql */
                released = true;
                if
                :: cancel_asked -> end_as(cancelled)
                :: !cancel_asked -> go_on_as(pending)
                fi
            fi
        :: !still_mine -> skip                               /* stale: dropped */
        fi
    }
}

/* extend.sql: a lease that has run out is not taken back. */
inline extend() {
    atomic {
        if
#ifdef EXTEND_LOST_LEASE
        :: state == running ->
            by_the_holder;
            expired = false
        :: state != running -> skip
#else
        :: still_mine && !expired -> by_the_holder
        :: !still_mine || expired -> skip
#endif
        fi
    }
}

proctype Worker(byte me) {
    byte mine, my_lease;
    bool released = false;
    bool chosen, crashed_before, may_call, my_life;
    do
    :: atomic { over || dead[me] -> break }
    :: claimable && !dead[me] ->
#ifdef CLAIM_WITHOUT_RECHECK
        chosen = true;                                       /* SELECT id ... */
        atomic { lease_to(me) }                              /* UPDATE ... WHERE id = */
#else
        atomic {
            chosen = claimable;
            if
            :: chosen -> lease_to(me)
            :: !chosen -> skip
            fi
        }
#endif
        if
        :: chosen ->
            if
            :: extend()
            :: skip
            fi;
            begin();
            if
            :: may_call ->
                if
                :: me < MORTALS -> break                     /* kill -9 */
                :: call();
                    if
                    :: settle()
                    :: me < MORTALS -> break                 /* kill -9 */
                    fi
                fi
            :: !may_call -> skip                             /* somebody else's by now: dropped */
            fi
        :: !chosen -> skip
        fi;
        /* forgotten: fewer states to visit */
        atomic { chosen = false; mine = 0; my_lease = 0; crashed_before = false; may_call = false; my_life = false }
    od;
    if
    :: me < MORTALS -> finished++
    :: me >= MORTALS -> skip
    fi
}

/* Time: a lease may run out whenever its holder doesn't extend it. That uses no retry, so it is limited here. */
active proctype Clock() {
    do
    :: atomic { over -> break }
    :: atomic { state == running && !expired && leases <= MAX_LOST -> expired = true }
    od
}

#ifdef LEADER_WITHOUT_TERM
#define in_office true
#else
#define in_office (term == my_term)
#endif

proctype Candidate() {
    byte my_term = 0;
    bool lost;
    do
    :: atomic { over -> break }
    :: atomic { term < MAX_TERM -> term++; my_term = term }  /* lead.sql: the last one's lease had run out */
    :: my_term > 0 ->
        if
        :: atomic {                                          /* bury_workers.sql */
            in_office && !dead[0] ->
                assert(term == my_term);                     /* only the newest leader changes anything */
                dead[0] = true
            }
        :: true ->                                           /* rescue.sql */
#ifdef RESCUE_BY_ID
            lost = state == running && (expired || (worker < WORKERS && dead[worker]));
            atomic {
                if
                :: in_office && lost -> rescued = true; lose()
                :: else -> skip
                fi
            }
#else
            atomic {
                lost = state == running && (expired || (worker < WORKERS && dead[worker]));
                if
                :: in_office && lost ->
                    assert(term == my_term);
                    rescued = true;
#ifdef TOKEN_RESET
                    token = 0;
#endif
                    lose()
                :: else -> skip
                fi;
                lost = false
            }
#endif
        fi
    od
}

/* cancel.sql, once, at any moment. */
active proctype Canceller() {
    if
    :: atomic {
        if
        :: claimable -> end_as(cancelled)
        :: state == running -> cancel_asked = true
#ifdef CANCEL_FINISHED
        :: terminal -> end_as(cancelled)
#else
        :: terminal -> skip
#endif
        fi
        }
    :: skip
    fi;
    finished++
}

/* replay.sql, once, after the task has ended. */
active proctype Operator() {
    atomic {
        terminal ->
            assert(endings == 1);
            state = pending;
            retries = 0;
            crashes = 0;
            endings = 0;
            calls = 0;
            recorded = false;
            cancel_asked = false;
            replayed = true
    }
    finished++
}

init {
    byte n;
    atomic {
        for (n : 0 .. WORKERS - 1) { run Worker(n) }
        for (n : 1 .. CANDIDATES) { run Candidate() }
    }
    over;
    assert(endings == 1)  /* exactly one ending, whatever happened */
}
