/* Several attempts at one position: which lists a lying server gets opened.
 *
 * The server is the network: it picks the members of each attempt, shows any list to anyone, and lets signatures of an
 * older attempt come late. Corrupt participants state nothing and sign everything. The members of an attempt state, as
 * they enter it, which list they signed in each earlier one; the rule is that of protocol/chain/position.py. With
 * CRASHES a participant loses its disk once. One that crashes and keeps it is out of the attempt, with all its records:
 * it does what a participant does that is shown nothing more there.
 *
 * A list is opened when enough have signed it and every honest participant in it has uploaded. Never are two different
 * lists opened that have an honest participant in common.
 *
 * With CRASHES an attempt needs a quorum of the electorate, which are all four, whose disks are there. Without, there is
 * no quorum, so that small attempts exist.
 */

#include "common.pml"

#ifndef ATTEMPTS
#define ATTEMPTS 2
#endif

byte begun;                          /* how many attempts there are */
byte members[ATTEMPTS];
byte own_list[PARTIES * ATTEMPTS];   /* on disk: the one list; 0 is none */
byte uploads[ATTEMPTS];              /* who has uploaded: as the server has it */
byte remembered[ATTEMPTS];           /* the members whose disks have a record of the attempt */
byte current[PARTIES] = ATTEMPTS;    /* the attempt it may still act in */
byte fresh;                          /* those who lost their disks */
byte signers[16 * ATTEMPTS];         /* of each list, as the server has them */
byte stated[ATTEMPTS * ATTEMPTS];    /* [as stated in][about]: the list that some member stated; 0 is none */
bit lost[ATTEMPTS];                  /* the statements of the attempt exclude each other */
short opened;                        /* the lists, as bits */
hidden byte one, other, who;

#define SIGNED(party, attempt) own_list[(party) * ATTEMPTS + (attempt)]
#define STATED(now, attempt) stated[(now) * ATTEMPTS + (attempt)]
#define IS_LIST(list, now) (INSIDE(list, members[now]) && SIZE(list) >= SMALLEST_COHORT)
#define AGREED(list, now) (SIZE(signers[16 * (now) + (list)] | (CORRUPT & (list))) >= THRESHOLD(SIZE(members[now])))
#define FORGOT(party, attempt) (HAS(fresh & members[attempt] & ~remembered[attempt], party))
#define NAMED_AGAIN(attempt, now) ((remembered[attempt] & members[now] & ~CORRUPT) != 0)

/* A member speaks of an earlier attempt if it remembers it, or has never lost a disk: then silence says that it was not there. */
#define SPEAKERS(now, attempt) (members[now] & members[attempt] & (remembered[attempt] | ~fresh))
#ifdef BUG_ONE_STATEMENT_FEWER
#define HEARD(now, attempt) (SIZE(SPEAKERS(now, attempt)) >= THRESHOLD(SIZE(members[attempt])) - 1)
#else
#define HEARD(now, attempt) (SIZE(SPEAKERS(now, attempt)) >= THRESHOLD(SIZE(members[attempt])))
#endif

/* Of the survivors in a list, those who speak and do not state it deny it; so many of them may lie. */
#define STATES(party, list, attempt, now) (HAS(SPEAKERS(now, attempt), party) && (party) < HONEST && SIGNED(party, attempt) == (list))
#define STATING(list, attempt, now) (STATES(0, list, attempt, now) + (STATES(1, list, attempt, now) << 1) + (STATES(2, list, attempt, now) << 2) + (STATES(3, list, attempt, now) << 3))
#define DENYING(list, attempt, now) SIZE((list) & SPEAKERS(now, attempt) & ~STATING(list, attempt, now))
#define LYING(denying) ((denying) < DENIALS -> (denying) : DENIALS)
#ifdef BUG_NOBODY_DENIES
#define DENIALS 0
#else
#define DENIALS COLLUDERS
#endif
#define MAY_BE_OPENED(list, attempt, now) (SIZE(list) - DENYING(list, attempt, now) + LYING(DENYING(list, attempt, now)) >= THRESHOLD(SIZE(members[attempt])))

inline require_separate() {
  for (one : 1 .. EVERYONE) {
    if
    :: (opened >> one) & 1 ->
      for (other : 1 .. EVERYONE) {
        assert(!((opened >> other) & 1) || one == other || ((one & other) & ~CORRUPT) == 0)
      }
    :: else
    fi
  }
}

inline see_what_is_open(now) {
  d_step { for (one : 1 .. EVERYONE) {
    if
    :: IS_LIST(one, now) && AGREED(one, now) && INSIDE(one & ~CORRUPT, uploads[now]) -> opened = opened | (1 << one)
    :: else
    fi
  }
  require_separate(); one = 0 }
}

/* The members enter, and state; what two of them say of one attempt, or of two, must fit together. */
inline enter(now) {
  for (who : 0 .. HONEST - 1) {
    if
    :: HAS(members[now], who) ->
      for (one : 0 .. ATTEMPTS - 1) {
        if
        :: one < now && SIGNED(who, one) != 0 && MAY_BE_OPENED(SIGNED(who, one), one, now) ->
          lost[now] = lost[now] || (STATED(now, one) != 0 && STATED(now, one) != SIGNED(who, one));
          STATED(now, one) = SIGNED(who, one)
        :: else
        fi
      }
      current[who] = now
    :: else
    fi
  }
  for (one : 0 .. ATTEMPTS - 1) {
    for (other : 0 .. ATTEMPTS - 1) {
      lost[now] = lost[now] || (STATED(now, one) != STATED(now, other) && (STATED(now, one) & STATED(now, other)) != 0)
    }
  }
  remembered[now] = members[now]
}

/* other: whether the participant may upload. */
inline judge_upload(me, now) {
  other = !lost[now];
  for (one : 0 .. ATTEMPTS - 1) {
    if
    :: one < now ->
      if
      :: FORGOT(me, one) && NAMED_AGAIN(one, now) -> other = 0       /* it has no update, and sits out */
      :: else
      fi
#ifndef BUG_OWN_RECORDS
      if
      :: HAS(uploads[one] & remembered[one], me) && !HEARD(now, one) -> other = 0
      :: HAS(STATED(now, one), me) && !INSIDE(STATED(now, one), members[now]) -> other = 0
      :: else
      fi
#endif
    :: else
    fi
  }
}

/* other: whether the participant may sign. */
inline judge_list(me, now, list) {
  other = HAS(list, me) && IS_LIST(list, now);
  for (one : 0 .. ATTEMPTS - 1) {
    if
#ifdef BUG_OWN_RECORDS
    :: one < now && SIGNED(me, one) != list && (SIGNED(me, one) & list) != 0 -> other = 0
#else
    :: one < now && STATED(now, one) != list && (STATED(now, one) & list) != 0 -> other = 0
#endif
    :: else
    fi
  }
}

inline sign(me, now, list) {
  judge_list(me, now, list);
  if
  :: other ->
    SIGNED(me, now) = list;
    signers[16 * now + list] = signers[16 * now + list] | BIT(me);
    see_what_is_open(now)
  :: else
  fi
}

inline lose_disk(me) {
  fresh = fresh | BIT(me);
  current[me] = ATTEMPTS;
  for (one : 0 .. ATTEMPTS - 1) {
    SIGNED(me, one) = 0;
    remembered[one] = remembered[one] & ~BIT(me)
  }
}

proctype Server() {
  byte chosen;
end:
  do
  :: atomic { begun < ATTEMPTS ->
       select(chosen : 1 .. EVERYONE);
       if
#if defined(CRASHES) && !defined(BUG_NO_QUORUM)
       :: SIZE(chosen & ~fresh) >= THRESHOLD(PARTIES) ->
#else
       :: SIZE(chosen) >= SMALLEST_COHORT ->
#endif
         members[begun] = chosen; enter(begun); begun++
       :: else
       fi
       chosen = 0 }
  od
}

proctype Participant(byte me) {
  byte list;
end:
  do
  :: atomic { current[me] < ATTEMPTS && !HAS(uploads[current[me]], me) ->
       judge_upload(me, current[me]);
       if
       :: other -> uploads[current[me]] = uploads[current[me]] | BIT(me); see_what_is_open(current[me])
       :: else
       fi }
  :: atomic { current[me] < ATTEMPTS && HAS(uploads[current[me]], me) && SIGNED(me, current[me]) == 0 ->
       select(list : 1 .. EVERYONE);
       sign(me, current[me], list);
       list = 0 }
#ifdef BUG_SIGNS_LATER
  :: atomic { current[me] == 1 && HAS(uploads[0], me) && SIGNED(me, 0) == 0 ->
       select(list : 1 .. EVERYONE);
       sign(me, 0, list);
       list = 0 }
#endif
#ifdef CRASHES
  :: atomic { !HAS(fresh, me) && current[me] < ATTEMPTS -> lose_disk(me) }
#endif
  od
}

init {
  byte party;
  atomic {
    run Server();
    for (party : 0 .. HONEST - 1) { run Participant(party) }
    party = 0
  }
}
