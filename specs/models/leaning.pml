/* One position of the chain: which states get votes of honest parties that lean on other votes, and not on the sum.
 *
 * The server is the network: it shows a sum to whom it likes, and votes to whom it likes, as many of those that were cast
 * as helps it. Corrupt participants vote for everything. Content 0 follows from a sum that verifies, content 1 from none:
 * no honest party verifies it. An honest party votes once, for what it verified or for what enough others voted for.
 * Its vote is on disk, so that a crash changes nothing; without a disk it has no vote. Never does an honest party vote
 * for content 1, and never is it certified.
 *
 * Whether there are two certificates is the business of votes.pml, where honest parties vote for anything at all.
 */

#include "common.pml"

#define NONE 2

#ifdef BUG_LEANS_ON_COLLUDERS
#define BEARS COLLUDERS
#else
#define BEARS (COLLUDERS + 1)
#endif

byte votes[2];                     /* the honest voters of each content */
byte voted[PARTIES] = NONE;        /* on disk */

#define SHOWN(content) (votes[content] | CORRUPT)

proctype Participant(byte me) {
  byte content;
end:
  do
  :: atomic { voted[me] == NONE -> voted[me] = 0; votes[0] = votes[0] | BIT(me) }     /* verifies, and votes */
  :: atomic { voted[me] == NONE ->                                                     /* leans on those who voted */
       select(content : 0 .. 1);
       if
       :: SIZE(SHOWN(content)) >= BEARS -> voted[me] = content; votes[content] = votes[content] | BIT(me)
       :: else
       fi;
       content = 0;
       assert(votes[1] == 0);
       assert(SIZE(SHOWN(1)) < THRESHOLD(PARTIES)) }
  od
}

init {
  byte party;
  atomic {
    for (party : 0 .. HONEST - 1) { run Participant(party) }
    party = 0
  }
}
